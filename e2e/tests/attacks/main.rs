//! What somebody who may write one object, or answers as a server, tries on the running services. `docs/security.md` names each of
//! these tests.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod hostile;
mod large;
mod names;
mod profile_secrets;
mod subscription;
mod unreadable;
mod user_cluster;

// The tests in `e2e/tests/chain` use the rest of these.
#[allow(dead_code)]
#[path = "../chain/fake_server.rs"]
mod fake_server;
#[allow(dead_code)]
#[path = "../chain/world.rs"]
mod world;
