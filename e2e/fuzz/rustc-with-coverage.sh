#!/bin/sh
# Cargo's RUSTC_WORKSPACE_WRAPPER: compiles what is fuzzed so that libFuzzer sees which branches an input takes. Dependencies are left as they
# are, and so are found where every other build has put them.
case " $* " in
*" --crate-name osm_api "* | *" --crate-name osm_gotemplate "* | *" --crate-name osm_render "* | *" --crate-name osm_user_data "* | *" --crate-name osm_fuzz "*)
  set -- "$@" -Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
  ;;
esac
exec "$@"
