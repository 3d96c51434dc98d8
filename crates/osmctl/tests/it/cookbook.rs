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
    let blocks = PAGE.split("\n```yaml\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("\n```").next());
    let (mut profiles, mut settings) = (0, 0);
    for block in blocks {
        let input = if block.starts_with("apiVersion:") {
            profiles += 1;
            block.to_owned()
        } else if block.starts_with("provisioningConfig:") {
            profiles += 1;
            let lines: String = block.lines().map(|line| format!("  {line}\n")).collect();
            format!("{PROFILE}{lines}")
        } else {
            settings += 1;
            block.to_owned()
        };
        let output = run("lint - --warnings-as-errors", &input);
        succeeds(&output);
    }
    assert_eq!((profiles, settings), (6, 6));
}
