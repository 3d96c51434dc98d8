//! The whole chain on a real API server: the services turn a MachineDeployment into an OperatingSystemConfig and Secrets. Each service
//! has its own identity and only its own rights.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod admission;
mod api_server_address;
mod approver;
mod bad_input;
mod bootstrap_tokens;
mod canaries;
mod clocks;
mod connections;
mod cost;
mod credentials;
mod custom_profiles;
mod expensive_profiles;
mod fake_server;
mod go_templates;
mod home;
mod joining;
mod joining_mode;
mod kubeconfig_secret;
mod loss;
mod many_pools;
mod metrics;
mod migrate;
mod monitoring;
mod number_of_pools;
mod order;
mod osmctl;
mod osmctl_home;
mod outage;
mod overload;
mod pools;
mod privilege;
mod profile_namespaces;
mod prometheus;
mod proxies;
mod replicas;
mod restore;
mod rights;
mod rotation;
mod runbooks;
mod served_namespaces;
mod sources;
mod start;
mod stored_forms;
mod takeover;
mod tampering;
mod two_clusters;
mod world;
