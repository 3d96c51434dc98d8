//! `osmctl new`: a commented start of a profile.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use osm_api::OperatingSystemProfile;
use osm_api::names::{NAME_RULE, is_dns_subdomain};
use osm_api::profile::{OperatingSystem, TemplateEngine};
use osm_user_data::yaml;

use crate::input::{self, Item};
use crate::output;
use crate::profiles::{built_in, built_in_names};

const TEMPLATE: &str = include_str!("new.yaml");

/// Print a commented start of a profile that extends another one
///
/// The profile adds one file to the other profile. Comments show what else it can add, replace and remove.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # Start from the built-in profile for Ubuntu, and let the editor check the fields
  osmctl new osp-mine --extends osp-ubuntu >osp-mine.yaml
  osmctl schema profile >osp.schema.json

  # Start from a profile of your own
  osmctl new osp-mine --extends osp-base -f base.yaml >osp-mine.yaml")]
pub struct New {
    /// Name of the new profile
    #[arg(value_parser = name)]
    name: String,
    /// Name of the profile to extend: a built-in profile, or one of -f
    #[arg(long, value_name = "PROFILE")]
    extends: String,
    /// File or folder with the profile to extend; can be repeated
    #[arg(short, long, value_name = "PATH|-")]
    filename: Vec<PathBuf>,
}

fn name(text: &str) -> Result<String, String> {
    if is_dns_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err(NAME_RULE.to_owned())
    }
}

impl New {
    /// Prints.
    pub fn run(self) -> Result<ExitCode> {
        let base = self.base()?;
        let spec = &base.value.spec;
        let engine = match spec.template_engine {
            TemplateEngine::GoTemplate => "GoTemplate",
            TemplateEngine::Handlebars => "Handlebars",
            TemplateEngine::None => "None",
        };
        let clouds: String = spec
            .supported_cloud_providers
            .iter()
            .map(|cloud| format!("    - name: {}\n", cloud.name))
            .collect();
        // Flatcar has no package manager.
        let with_packages = spec.os_name != OperatingSystem::Flatcar;
        let lines = TEMPLATE.split_inclusive('\n');
        let lines = lines.filter(|line| with_packages || !line.contains("# packages:"));
        let text: String = lines.collect();
        let text = text
            .replace(
                "@PACKAGES@",
                if with_packages {
                    "Packages of the operating system, kernel"
                } else {
                    "Kernel"
                },
            )
            .replace("@NAME@", &self.name)
            .replace("@BASE@", &self.extends)
            .replace("@SYSTEM@", spec.os_name.as_str())
            .replace("@SYSTEM_VERSION@", &yaml::json(&spec.os_version.as_str().into()))
            .replace("@ENGINE@", engine)
            .replace("@UTILITY@", spec.provisioning_utility.as_str())
            .replace("    # @CLOUDS@\n", &clouds);
        output::document(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn base(&self) -> Result<Item<OperatingSystemProfile>> {
        let given = input::manifests(&self.filename)?.profiles;
        let mut given = given.into_iter();
        let found = given.find(|item| item.value.metadata.name.as_deref() == Some(&self.extends));
        match found.or_else(|| built_in(&self.extends)) {
            Some(item) => Ok(item),
            None => bail!(
                "profile {} does not exist; provide it with -f, or use a built-in profile: {}",
                self.extends,
                built_in_names()
            ),
        }
    }
}
