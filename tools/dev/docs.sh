#!/usr/bin/env bash
# Writes docs/cli.md from the program's own help, and the site in build/site. With --check: fails if docs/cli.md is stale
# or a document has a link that leads nowhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/portable.sh
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
build/bin/lockstep docs >"$fresh"
if [ "${1:-}" = --check ]; then
  diff -u docs/cli.md "$fresh" || { echo "docs/cli.md is stale: run ./dev docs" >&2; exit 1; }
else
  mkdir -p docs
  cp "$fresh" docs/cli.md
  echo "docs/cli.md written"
fi
"$(any_python)" tools/docs_site.py build/site
