#!/bin/sh
# Runs fuzz targets, guided by coverage, on the stable compiler: e2e/fuzz/run.sh SECONDS [TARGET...]. Without targets, it runs all of them.
# Each run continues with the corpus of the run before, in target/fuzzing. `OSM_FUZZ_SEED=N` repeats a run. An input that breaks a property
# stays in target/fuzzing/TARGET/found.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:?usage: e2e/fuzz/run.sh SECONDS [TARGET...]}
shift

# With the features of the whole workspace, so that dependencies are not compiled again; libFuzzer needs a C++ compiler.
RUSTC_WORKSPACE_WRAPPER=$PWD/e2e/fuzz/rustc-with-coverage.sh \
  cargo build --profile fuzz --workspace --features osm-fuzz/libfuzzer --bin fuzz
OSM_FUZZ_SEEDS=$PWD/target/fuzzing cargo test --quiet -p osm-fuzz seeds_are_written
[ $# -gt 0 ] || set -- $(ls target/fuzzing)

failed=
for target; do
  work=target/fuzzing/$target
  mkdir -p "$work/corpus" "$work/found"
  # It checks the bounds of docs/limits.md itself. These only end what hangs.
  OSM_FUZZ_TARGET=$target RUST_BACKTRACE=0 target/fuzz/fuzz -dict=e2e/fuzz/src/dictionary.txt \
    -artifact_prefix="$work/found/" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 \
    ${OSM_FUZZ_SEED:+-seed=$OSM_FUZZ_SEED} -print_final_stats=1 -verbosity=0 "$work/corpus" "$work/seeds" 2>"$work/log" || {
    failed="$failed $target"
    tail -60 "$work/log" >&2
    continue
  }
  echo "$target: $(sed -n 's/.*number_of_executed_units: *//p' "$work/log") inputs, $(ls "$work/corpus" | wc -l) in the corpus"
done
[ -z "$failed" ] || {
  echo "failed:$failed; to repeat one: OSM_FUZZ_TARGET=NAME target/fuzz/fuzz target/fuzzing/NAME/found/FILE" >&2
  exit 1
}
