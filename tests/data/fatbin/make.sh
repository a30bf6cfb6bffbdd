#!/bin/sh
# make.sh: the files of this folder from which.cu, with nvcc of CUDA 13.0. They are checked in, so that tests need none.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-/usr/local/cuda/bin/nvcc}
ptx='-gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=compute_90'

# shellcheck disable=SC2086 # several words
for mode in none speed balance size; do
	"$nvcc" -fatbin "--compress-mode=$mode" $ptx which.cu -o "ptx-$mode.fatbin"
done
"$nvcc" -fatbin -gencode 'arch=compute_90,code=[compute_90,sm_90]' which.cu -o mixed.fatbin
"$nvcc" -fatbin -gencode 'arch=compute_100,code=compute_100' which.cu -o newer.fatbin
"$nvcc" -fatbin -gencode 'arch=compute_90,code=sm_90' which.cu -o machine.fatbin
"$nvcc" -cubin -arch=sm_90 which.cu -o machine.cubin
