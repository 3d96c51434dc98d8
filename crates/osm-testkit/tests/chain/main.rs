//! The whole chain on a real API server: MachineDeployment → OperatingSystemConfig → Secrets, by the three services,
//! each with its own identity and only its own rights.

mod bad_input;
mod credentials;
mod loss;
mod order;
mod outage;
mod rotation;
mod world;
