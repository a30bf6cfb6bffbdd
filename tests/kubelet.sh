#!/bin/bash
# kubelet.sh [BUILD-DIR]: a pod through a real kubelet, containerd (CRI) with belfry-oci as its runtime, and
# belfry-device-plugin, on the software GPU. CI does not run it: without an argument, and without BELFRY_TEST_KUBELET=1, it is
# skipped. It needs root, containerd and runc. The kubelet is $BELFRY_KUBELET, or is built from Debian's source package
# kubernetes in $BELFRY_KUBELET_DIR (/tmp/belfry-kubelet), which takes 5 to 30 minutes and downloads 35 MB.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2034,SC2154,SC2317
set -u
if [ $# = 0 ] && [ "${BELFRY_TEST_KUBELET:-}" != 1 ]; then
	echo "skipped: it builds a kubelet; give the build folder, or set BELFRY_TEST_KUBELET=1"
	exit 77
fi
here=$(dirname "$(realpath "$0")")
build=$(realpath "${1:-$here/../build}")
if [ "$(id -u)" != 0 ]; then
	echo "skipped: a kubelet needs root"
	exit 77
fi
for program in containerd ctr runc; do
	command -v $program >/dev/null || { echo "skipped: $program is not installed"; exit 77; }
done

# The package names its dependencies for a build with its own tools. The vendored sources need Go only.
build_kubelet() {
	local at="${BELFRY_KUBELET_DIR:-/tmp/belfry-kubelet}" apt
	kubelet_program="$at/kubelet"
	[ ! -x "$kubelet_program" ] || return 0
	mkdir -p "$at"/{sources,lists/partial,go/src/k8s.io}
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends golang-1.19-go dpkg-dev >/dev/null || return 1
	printf 'Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: main\nSigned-By: %s\n' \
		/usr/share/keyrings/debian-archive-keyring.gpg >"$at/sources/debian.sources"
	apt=(apt-get -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$at/sources" -o "Dir::State::lists=$at/lists")
	if [ ! -d "$at/go/src/k8s.io/kubernetes" ]; then
		(cd "$at" && "${apt[@]}" update >/dev/null && "${apt[@]}" source kubernetes >/dev/null 2>&1) || return 1
		mv "$at"/kubernetes-*/ "$at/go/src/k8s.io/kubernetes" || return 1
	fi
	(cd "$at/go/src/k8s.io/kubernetes" && GO111MODULE=off GOPATH="$at/go" GOCACHE="$at/cache" \
		/usr/lib/go-1.19/bin/go build -o "$kubelet_program" ./cmd/kubelet)
}

if [ -z "${BELFRY_TEST_IN_NAMESPACE:-}" ]; then
	kubelet_program=${BELFRY_KUBELET:-}
	[ -n "$kubelet_program" ] || build_kubelet || { echo "FAILED: the kubelet cannot be built"; exit 1; }
	export BELFRY="$build/belfry" BELFRYD="$build/belfryd" BELFRY_BUILD_DIR="$build" BELFRY_SOFT_SERVER="$build/belfry-soft"
	exec env BELFRY_TEST_IN_NAMESPACE=1 BELFRY_KUBELET="$kubelet_program" unshare --mount --propagation private "$0" "$build"
fi
. "$here/e2e/common.sh"
. "$here/e2e/containers.sh"
export BELFRY_SOFT="mem=8G,linger=1,name=kubelet$$"

# image NAME FOLDER ENTRY: an image of one layer, in containerd.
image() {
	python3 - "$work/image.tar" "$1" "$2" "$3" <<'P'
import hashlib, io, json, sys, tarfile
path, name, folder, entry = sys.argv[1:]
blobs = {}


def blob(data):
    digest = hashlib.sha256(data).hexdigest()
    blobs[f"blobs/sha256/{digest}"] = data
    return {"digest": f"sha256:{digest}", "size": len(data)}


layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w") as tar:
    tar.add(folder, ".")
layer = blob(layer.getvalue())
config = blob(json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": [entry]},
                          "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}).encode())
kind = "application/vnd.oci.image."
manifest = blob(json.dumps({"schemaVersion": 2, "config": dict(config, mediaType=kind + "config.v1+json"),
                            "layers": [dict(layer, mediaType=kind + "layer.v1.tar")]}).encode())
manifest.update(mediaType=kind + "manifest.v1+json", annotations={"io.containerd.image.name": name})
blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
with tarfile.open(path, "w") as tar:
    for file, data in blobs.items():
        info = tarfile.TarInfo(file)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
P
	status 0 ctr --address "$work/c/sock" --namespace k8s.io images import "$work/image.tar"
}

start_containerd() {
	mkdir -p "$work/c"
	printf '#!/bin/bash\nexport BELFRY_SOCKET=%s BELFRY_OCI_MARKS=%s\nexec -a belfry-oci %s --belfry-runtime=runc "$@"\n' \
		"$BELFRY_SOCKET" "$work/marks" "$belfry" >"$work/c/runtime"
	chmod +x "$work/c/runtime"
	# A RuntimeClass is an object of an API server, which a kubelet alone does not have. So its handler is the default.
	cat >"$work/c/config.toml" <<-END
		version = 2
		root = "$work/c/root"
		state = "$work/c/state"
		[grpc]
		  address = "$work/c/sock"
		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "localhost/pause:1"
		  disable_apparmor = true
		  restrict_oom_score_adj = true
		[plugins."io.containerd.grpc.v1.cri".containerd]
		  snapshotter = "native"
		  default_runtime_name = "belfry"
		[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.belfry]
		  runtime_type = "io.containerd.runc.v2"
		[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.belfry.options]
		  BinaryName = "$work/c/runtime"
	END
	containerd --config "$work/c/config.toml" >"$work/containerd.log" 2>&1 &
	containerd=$!
	until_so containerd_answers
}
containerd_answers() { timeout 20 ctr --address "$work/c/sock" version >/dev/null 2>&1; }

# This kubelet has its plugins in a folder that no option changes.
start_kubelet() {
	mkdir -p /var/lib/kubelet/device-plugins "$work/pods"
	"$BELFRY_KUBELET" --container-runtime=remote --container-runtime-endpoint="unix://$work/c/sock" \
		--pod-manifest-path="$work/pods" --file-check-frequency=1s --root-dir=/var/lib/kubelet --cert-dir="$work/certs" \
		--cgroup-driver=cgroupfs --cgroups-per-qos=false --enforce-node-allocatable= --fail-swap-on=false --eviction-hard= \
		--make-iptables-util-chains=false --address=127.0.0.1 --port="$port" --read-only-port=0 --healthz-port=0 \
		--hostname-override=node >"$work/kubelet.log" 2>&1 &
	kubelet=$!
}
# pod NAME GIB PERCENT SCRIPT: a static pod, which runs the script with sh.
pod() {
	cat >"$work/$1.yaml" <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: $1, namespace: lab}
		spec:
		  hostNetwork: true
		  restartPolicy: Never
		  terminationGracePeriodSeconds: 1
		  containers:
		    - name: main
		      image: localhost/root:1
		      imagePullPolicy: Never
		      command: [sh, -c, "$4"]
		      resources: {limits: {belfry.dev/memory-gib: $2, belfry.dev/time-percent: $3}}
		      volumeMounts:
		        - {name: usr, mountPath: /usr, readOnly: true}
		        - {name: build, mountPath: /build, readOnly: true}
		        - {name: share, mountPath: /share}
		  volumes:
		    - {name: usr, hostPath: {path: /usr}}
		    - {name: build, hostPath: {path: $build}}
		    - {name: share, hostPath: {path: $work/share}}
	END
	mv "$work/$1.yaml" "$work/pods/"
}
vgpu_of() { timeout 20 "$belfry" ls 2>/dev/null | awk -v name="$1-node.pod-" 'index($1, name) == 1 { print $1; exit }'; }
has_vgpu() { [ -n "$(vgpu_of "$1")" ]; }
has_no_vgpu() { ! has_vgpu "$1"; }
no_tasks() { [ "$(timeout 20 ctr --address "$work/c/sock" --namespace k8s.io tasks ls -q 2>/dev/null)" = '' ]; }

clean_up_all() {
	rm -f "$work"/pods/*.yaml
	[ -z "${containerd:-}" ] || [ -z "${kubelet:-}" ] || until_so no_tasks
	[ -z "${kubelet:-}" ] || { kill "$kubelet" && ended "$kubelet"; }
	[ -z "${containerd:-}" ] || { kill "$containerd" && ended "$containerd"; }
	awk -v at="$work/" 'index($2, at) == 1 || index($2, "/var/lib/kubelet") == 1 { print $2 }' /proc/mounts | sort -r |
		xargs -r umount -l
	find /sys/fs/cgroup -depth -type d -name k8s.io -exec rmdir {} + 2>/dev/null # if it is empty
	[ -n "$had_kubelet" ] || rmdir /var/lib/kubelet
	clean_up
}
had_kubelet=1
[ -d /var/lib/kubelet ] || { had_kubelet= && mkdir /var/lib/kubelet; }
mount -t tmpfs none /var/lib/kubelet
trap clean_up_all EXIT

use_daemon
printf '[server]\noci_socket = %s\non_daemon_death = carry\n' "$work/d/oci.sock" >"$work/conf"
hide_unified
make_root
mkdir "$root"/{share,build} "$work"/{share,pause} 2>/dev/null
printf '#include <unistd.h>\nint main(void) { for (;;) pause(); }\n' >"$work/pause.c"
gcc -static -O1 -o "$work/pause/pause" "$work/pause.c" || exit 1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
start_daemon
until_so test -S "$work/d/oci.sock"
start_containerd
image localhost/pause:1 "$work/pause" /pause
image localhost/root:1 "$root" /bin/sh
start_kubelet
until_so test -S /var/lib/kubelet/device-plugins/kubelet.sock || { tail -n 20 "$work/kubelet.log"; exit 1; }
"$build/src/kube/belfry-device-plugin" --marks "$work/marks" >"$work/plugin.log" 2>&1 &
plugin=$!
until_so has_line 'belfry.dev/time-percent: registered with the kubelet' "$work/plugin.log"

# The pod has its part of the memory, and an ordinary error beyond it.
pod first 1 30 '/build/tests/e2e/hog >/share/first.out 2>&1; : >/share/first.ready; exec sleep 600'
until_so test -e "$work/share/first.ready" || { tail -n 40 "$work/kubelet.log" "$work/containerd.log"; exit 1; }
grep -q 'total 1024 .*left 0 error 2' "$work/share/first.out" || fail "memory: $(cat "$work/share/first.out")"
vgpu=$(vgpu_of first)
is_figure "$vgpu" runs.0.kind pod && is_figure "$vgpu" runs.0.pod first-node && is_figure "$vgpu" runs.0.namespace lab &&
	is_figure "$vgpu" runs.0.container main && is_figure "$vgpu" time.request 0.3 ||
	fail "the vGPU of the pod: $(timeout 20 "$belfry" ls --json)"
# The kubelet is restarted, and the plugin registers again.
kill "$kubelet"
ended "$kubelet"
: >"$work/plugin.log"
start_kubelet
until_so has_line 'belfry.dev/memory-gib: registered with the kubelet' "$work/plugin.log"
is_figure "$vgpu" runs.0.pod first-node || fail "the pod has ended with the kubelet"
# A second pod beside it; the removal of a pod removes its vGPU.
pod second 2 20 '/build/tests/e2e/hog 5 >/share/second.out 2>&1; : >/share/second.ready; exec sleep 600'
until_so test -e "$work/share/second.ready" || tail -n 40 "$work/kubelet.log"
grep -q 'total 2048 .*got 5 ' "$work/share/second.out" || fail "the second pod: $(cat "$work/share/second.out")"
rm "$work/pods/first.yaml" "$work/pods/second.yaml"
until_so has_no_vgpu first
until_so has_no_vgpu second
until_so is_figure '' gpus.0.mem.used 0
kill "$plugin"
ended "$plugin"
[ "$failed" = 0 ] && echo "a pod of a kubelet ($("$BELFRY_KUBELET" --version)) ran on a vGPU"
exit "$failed"
