//! Fuzz targets for everything that reads what others write.
//!
//! | Target | What others write |
//! |---|---|
//! | [`profile`] | the spec of an OperatingSystemProfile |
//! | [`template`] | the text of one template |
//! | [`go_template`] | the text of one Go template |
//! | [`provider_spec`] | machine-controller's part of a MachineDeployment |
//! | [`annotations`] | annotations with settings of the kubelet |
//! | [`settings`] | the settings document of an installation |
//! | [`pool_settings`] | the settings of one pool, with those that a ConfigMap holds |
//! | [`config`] | the spec of a stored OperatingSystemConfig |
//! | [`object`] | a page of a list, a line of a watch, or one object, as an API server sends it |
//! | [`csr`] | the request of a certificate |
//! | [`content`] | the data of a provisioning Secret, and compressed texts |
//! | [`kubeconfig`] | a kubeconfig, `cluster-info`, or the registry credentials of a Secret |
//!
//! None may panic, hang, give other bytes the second time, or repeat a value in a message. What judges or renders a profile may not exceed
//! the bounds of memory, nor, in an optimised build, of time; nor may what reads one of the last four. `e2e/fuzz/run.sh` runs them with coverage
//! as the guide, on the stable compiler. Tests run what the targets start from.

pub mod annotations;
pub mod config;
pub mod content;
pub mod csr;
pub mod go_template;
pub mod kubeconfig;
pub mod object;
pub mod pool_settings;
pub mod profile;
pub mod provider_spec;
pub mod settings;
pub mod template;

mod bounds;
mod canary;
mod hex;
mod pipeline;

/// Something that reads what others write.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name in `OSM_FUZZ_TARGET`.
    pub name: &'static str,
    /// Reads an input and panics where a property doesn't hold.
    pub run: fn(&[u8]),
    /// Inputs to start from, most of them good.
    pub seeds: fn() -> Vec<String>,
}

/// All targets.
pub const TARGETS: [Target; 12] = [
    Target {
        name: "profile",
        run: profile::run,
        seeds: profile::seeds,
    },
    Target {
        name: "template",
        run: template::run,
        seeds: template::seeds,
    },
    Target {
        name: "go-template",
        run: go_template::run,
        seeds: go_template::seeds,
    },
    Target {
        name: "provider-spec",
        run: provider_spec::run,
        seeds: provider_spec::seeds,
    },
    Target {
        name: "annotations",
        run: annotations::run,
        seeds: annotations::seeds,
    },
    Target {
        name: "settings",
        run: settings::run,
        seeds: settings::seeds,
    },
    Target {
        name: "pool-settings",
        run: pool_settings::run,
        seeds: pool_settings::seeds,
    },
    Target {
        name: "config",
        run: config::run,
        seeds: config::seeds,
    },
    Target {
        name: "object",
        run: object::run,
        seeds: object::seeds,
    },
    Target {
        name: "csr",
        run: csr::run,
        seeds: csr::seeds,
    },
    Target {
        name: "content",
        run: content::run,
        seeds: content::seeds,
    },
    Target {
        name: "kubeconfig",
        run: kubeconfig::run,
        seeds: kubeconfig::seeds,
    },
];

/// Takes away libFuzzer's panic hook, which ends the process even where a panic is caught, as the template engine does with those of its
/// parser. One that nobody catches ends it all the same.
pub fn let_panics_be_caught() {
    drop(std::panic::take_hook());
}
