# A short front for meson. `make help` lists the targets.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 20

all:
	@tools/deps.sh --check build
	@tools/configure.sh $(BUILD) --prefix=$(PREFIX)
	@ninja -C $(BUILD) --quiet

help:
	@echo 'make               build/belfry and build/belfryd'
	@echo 'make demo          a first look; installs missing Debian packages'
	@echo 'make test          every test that needs no GPU; installs missing Debian packages'
	@echo 'make test-gpu      the tests that need an NVIDIA GPU'
	@echo 'make bench         what docs/measurements.md reports; needs an NVIDIA GPU'
	@echo 'make install       to DESTDIR and PREFIX (/usr/local)'
	@echo 'make uninstall     remove what make install has installed there'
	@echo 'make portable      dist/belfry-portable: runs with nothing installed but glibc'
	@echo 'make deb           dist/*.deb: Debian packages; test-deb also installs, upgrades and purges them'
	@echo 'make format        rewrite the sources with clang-format; check-format only checks'
	@echo 'make lint          clang-tidy, cppcheck, shellcheck, mandoc, the modules'
	@echo 'make sanitize      the tests under the address, undefined and thread sanitizers'
	@echo 'make fuzz          every fuzzer for FUZZ_SECONDS (20) each'
	@echo 'make clean         remove everything that was built'

test-deps:
	@tools/deps.sh build test

demo: test-deps
	@$(MAKE) --no-print-directory all
	@tools/demo.sh $(BUILD)

test: test-deps
	@$(MAKE) --no-print-directory all
	@tools/test.sh $(BUILD)

test-gpu: all
	@BELFRY_BUILD_DIR=$(abspath $(BUILD)) tests/gpu/run.sh

bench: all
	@BELFRY_BUILD_DIR=$(abspath $(BUILD)) bench/run.sh

install: all
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

# Folders of Belfry's own that are empty then are removed as well: meson knows those that its last install has made.
# meson removes what was installed last. That may have gone elsewhere.
uninstall:
	@awk -v where="$(DESTDIR)$(PREFIX)/" '!/^#/ && index($$0 "/", where) != 1 && index(where, $$0 "/") != 1 { \
		print "the last make install did not go to " where ", but installed " $$0 "; nothing is removed"; exit 1 }' \
		$(BUILD)/meson-logs/install-log.txt >&2
	@ninja -C $(BUILD) --quiet uninstall
	@for folder in include/belfry lib/belfry libexec/belfry share/belfry share/doc/belfry; do \
		[ ! -d "$(DESTDIR)$(PREFIX)/$$folder" ] || find "$(DESTDIR)$(PREFIX)/$$folder" -depth -type d -empty -delete; \
	done

portable:
	@tools/deps.sh build
	@tools/portable.sh build-portable dist/belfry-portable

deb:
	@tools/deps.sh build deb
	@tools/deb.sh build-deb dist

test-deb: deb all
	@tests/deb.sh dist $(BUILD)

format:
	@tools/format.sh -i

check-format:
	@tools/format.sh --dry-run -Werror

lint: all
	@tools/lint.sh $(BUILD)

sanitize:
	@tools/sanitize.sh address,undefined build-asan
	@tools/sanitize.sh thread build-tsan

fuzz:
	@tools/fuzz.sh build-fuzz $(FUZZ_SECONDS)

clean:
	rm -rf build build-portable build-deb build-asan build-tsan build-fuzz dist

.PHONY: all help test-deps demo test test-gpu bench install uninstall portable deb test-deb format check-format lint sanitize fuzz clean
