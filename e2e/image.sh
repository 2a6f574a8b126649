#!/usr/bin/env bash
# Builds the image of ../Dockerfile for real, without a registry, and asks its binary for a page.
#
# Debian's buildah builds it, and never pulls: the base that the FROM line names is made here, from the installed Go
# toolchain and a shell, and modules come from the machine's own module cache. Needs root (for chroot and mounts).
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || exec sudo -E env "PATH=$PATH" bash "$PWD/e2e/image.sh" "$@"

say() { printf '== %s (%ds)\n' "$*" "$SECONDS"; }
fail() { printf 'image: %s\n' "$*" >&2; [ ! -s "$work/weir.log" ] || cat "$work/weir.log" >&2; exit 1; }

need() { # need COMMAND PACKAGE
	command -v "$1" >/dev/null && return
	say "installing $2"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}
need buildah buildah
need curl curl
[ -s /etc/ssl/certs/ca-certificates.crt ] || need update-ca-certificates ca-certificates

work=$(mktemp -d)
started=()
buildah() { command buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
cleanup() {
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
	buildah umount --all >/dev/null 2>&1
	buildah rm --all >/dev/null 2>&1
	rm -rf "$work"
}
trap 'set +e; cleanup' EXIT

# The base: what `FROM golang:…` promises, as far as the Dockerfile uses it.
base=$(sed -n 's/^FROM \([^ ]*\) AS build$/\1/p' Dockerfile)
[ -n "$base" ] || fail 'no line "FROM … AS build" in Dockerfile'
say "base $base from $(go version)"
go mod download
root=$work/base
mkdir -p "$root"/{bin,cache,etc/ssl/certs,proxy,root,tmp,usr/local}
chmod 1777 "$root/tmp"
tar -C "$(go env GOROOT)/.." --exclude=go/test --exclude=go/api --exclude=go/doc -cf - "$(basename "$(go env GOROOT)")" | tar -C "$root/usr/local" -xf -
cp -L /bin/sh "$root/bin/sh"
ldd /bin/sh | grep -o '/[^ ]*' | while read -r lib; do
	mkdir -p "$root$(dirname "$lib")"
	cp -L "$lib" "$root$lib"
done
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
container=$(buildah from scratch)
buildah add -q "$container" "$root" / >/dev/null
rm -rf "$root"
buildah config --env PATH=/usr/local/go/bin:/bin --env GOTOOLCHAIN=local --env GOPROXY=file:///proxy --env GOFLAGS=-modcacherw --env GOCACHE=/cache "$container"
buildah commit -q "$container" "$base" >/dev/null
buildah rm "$container" >/dev/null

say 'image'
mkdir -p "$(go env GOCACHE)"
buildah build --quiet --pull-never --isolation chroot --format docker --tag weir \
	--volume "$(go env GOMODCACHE)/cache/download:/proxy:ro" --volume "$(go env GOCACHE):/cache" . >/dev/null ||
	fail 'the build failed; see above'
config=$(buildah inspect --type image --format '{{.Docker.Config.User}} {{.Docker.Config.Healthcheck}}' weir)
[[ $config == '65532:65532 '*healthcheck* ]] || fail "the image's user and health check are: $config"

say 'a page through it'
cat >"$work/upstream.go" <<'GO'
package main

import (
	"fmt"
	"net"
	"net/http"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "a page")
	}))
}
GO
go build -o "$work/upstream" "$work/upstream.go"
"$work/upstream" >"$work/upstream.addr" &
started+=($!)

eventually() { # eventually WHAT COMMAND...: until it succeeds, for ten seconds
	local what=$1
	shift
	for _ in $(seq 100); do
		"$@" && return
		sleep 0.1
	done
	fail "no $what in ten seconds"
}
eventually 'upstream' test -s "$work/upstream.addr"

# As a container runs it: the image's user, a file system that cannot be written, nothing of this machine's environment.
container=$(buildah from --pull-never weir)
rootfs=$(buildah mount "$container")
inside='mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec env -i "$(command -v chroot)" --userspec=65532:65532 "$0" /weir "$@"'
contained() { unshare --mount sh -c "$inside" "$rootfs" "$@"; }
: >"$work/weir.log"
unshare --mount sh -c "$inside" "$rootfs" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream "http://$(cat "$work/upstream.addr")" 2>"$work/weir.log" &
weir=$!
started+=($weir)
eventually 'listening line in the log' grep -q '"msg":"listening"' "$work/weir.log"
field() { sed -n '/"msg":"listening"/s/.*"'"$1"'":"\([^"]*\)".*/\1/p' "$work/weir.log"; }
url=http://$(field listen)/
for expected in 'fwd=uri-miss' 'hit'; do
	curl -sS -D "$work/head" "$url" >"$work/body" || fail "no answer from $url"
	[ "$(cat "$work/body")" = 'a page' ] || fail "body: $(cat "$work/body")"
	grep -i '^cache-status:' "$work/head" | grep -q "$expected" || fail "no $expected in: $(cat "$work/head")"
done
contained healthcheck --admin "$(field admin)" || fail 'the health check says no'

say 'and its end'
kill -TERM "$weir"
code=0
wait "$weir" || code=$?
[ "$code" = 0 ] || fail "SIGTERM ended it with $code"
echo "image: built, $(du -h "$rootfs/weir" | cut -f1) binary, answered, healthy, drained"
