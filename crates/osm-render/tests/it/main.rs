//! From profiles to documents: what is rendered, and what the programs that read it say.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod additions;
mod common;
mod compatibility;
mod coreos_cloudinit;
mod examples;
mod extends;
mod go_templates;
mod golden;
mod ignition;
mod inputs;
mod kubelet;
mod kubelet_values;
mod machine;
mod matrix;
mod osp_flatcar;
mod osp_ubuntu;
mod render;
mod variables;
mod yaml;
