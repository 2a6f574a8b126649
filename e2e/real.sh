#!/usr/bin/env bash
# Puts Weir in front of nginx and Python's http.server, and compares what comes through it with what they say themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
as_root=; [ "$(id -u)" = 0 ] || as_root=sudo
missing=
command -v nginx >/dev/null || missing+=" nginx-light"
command -v python3 >/dev/null || missing+=" python3"
if [ -n "$missing" ]; then
	$as_root apt-get update -qq
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
fi
go test -count=1 -v -run '^TestReal$' ./e2e -real
