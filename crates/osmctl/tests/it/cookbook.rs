//! The recipes of docs/cookbook.md.

use super::{run, succeeds};

const PAGE: &str = include_str!("../../../../docs/cookbook.md");

/// What stands around a recipe for a profile.
const PROFILE: &str = "\
apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {name: osp-mine, namespace: kube-system}
spec:
  extends: osp-ubuntu
  osName: ubuntu
  osVersion: '24.04'
  version: v1.0.0
  templateEngine: Handlebars
  supportedCloudProviders: [{name: openstack}, {name: aws}]
";

#[test]
fn every_recipe_passes_the_checks() {
    let blocks = PAGE.split("\n\n").filter(|block| block.starts_with("    "));
    let (mut profiles, mut settings) = (0, 0);
    for block in blocks {
        let input = if block.starts_with("    provisioningConfig:") {
            profiles += 1;
            // A recipe is indented by four spaces, and a spec by two.
            let lines = block.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
            let lines: Vec<&str> = lines.collect();
            format!("{PROFILE}{}\n", lines.join("\n"))
        } else {
            settings += 1;
            block.to_owned()
        };
        let output = run("lint - --warnings-as-errors", &input);
        succeeds(&output);
    }
    assert_eq!((profiles, settings), (5, 6));
}
