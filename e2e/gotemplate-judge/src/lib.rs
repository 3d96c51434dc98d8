//! Compares `osm-gotemplate` with Go's `text/template` and sprig. Everything is in the tests.
//!
//! A case is templates, data with Go's types, and what Go made of them. Each line of the files in `cases/` is
//! one, and tests run them without Go. `cargo xtask bless --go-templates` renders all of them with the Go
//! program in `e2e/judges/gotemplate`, and writes what it gives.
