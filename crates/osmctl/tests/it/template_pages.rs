//! The blocks of docs/templates.md and docs/go-templates.md, each in a profile.

use super::{err, naming_profile, out, run, succeeds};

const TEMPLATES: &str = include_str!("../../../../docs/templates.md");
const GO_TEMPLATES: &str = include_str!("../../../../docs/go-templates.md");

/// The blocks of a section, without their indentation. The section before the first heading has no name.
fn blocks(page: &str, section: &str) -> Vec<String> {
    let sections = page.split("\n## ");
    let mut found = sections.filter(|text| section.is_empty() || text.lines().next() == Some(section));
    let section = found.next().unwrap();
    let blocks = section.split("\n\n").filter(|block| block.starts_with("    "));
    let lines = |block: &str| -> Vec<String> {
        let lines = block.lines().map_while(|line| line.strip_prefix("    "));
        lines.map(str::to_owned).collect()
    };
    blocks.map(|block| lines(block).join("\n")).collect()
}

/// A profile for Ubuntu with these stages, each a list of files.
fn profile(engine: &str, stages: &[(&str, String)]) -> String {
    let mut text = format!(
        "apiVersion: operatingsystemmanager.k8c.io/v1alpha1\nkind: OperatingSystemProfile\nmetadata: {{name: osp-mine}}\nspec:\n  \
         osName: ubuntu\n  osVersion: '24.04'\n  version: v1.0.0\n  templateEngine: {engine}\n  \
         supportedCloudProviders: [{{name: openstack}}, {{name: aws}}]\n"
    );
    for (stage, files) in stages {
        text.push_str(&format!("  {stage}:\n    files:\n"));
        files
            .lines()
            .for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

/// A file with this text.
fn file(path: &str, text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("        {line}\n")).collect();
    format!("- path: {path}\n  permissions: 600\n  content:\n    inline:\n      data: |\n{lines}")
}

fn passes(profile: &str) {
    let output = run("lint - --warnings-as-errors", profile);
    succeeds(&output);
}

#[test]
fn every_block_is_valid_in_a_profile() {
    let library = blocks(TEMPLATES, "The library");
    let provisioning = |files: &str| [("provisioningConfig", files.to_owned())];
    passes(&profile("Handlebars", &provisioning(&library[0])));

    // What is written for a value needs the value.
    let helpers = &blocks(TEMPLATES, "Helpers")[0];
    let contexts = [
        [
            "{{#each containerd.registries}}{{#if server}}",
            "{{/if}}{{/each}}",
        ],
        ["{{#if proxy.http}}", "{{/if}}"],
        ["", ""],
    ];
    let lines: Vec<&str> = helpers.lines().collect();
    assert_eq!(lines.len(), contexts.len(), "{helpers}");
    for (line, [before, after]) in lines.iter().zip(contexts) {
        let text = file("/etc/a", &format!("{before}{line}{after}"));
        passes(&profile("Handlebars", &provisioning(&text)));
    }

    let late = &blocks(TEMPLATES, "Late-bound values")[0];
    let (header, password) = late.split_once('\n').unwrap();
    let password = format!(
        "{{{{#each containerd.registries}}}}{{{{#if credentials}}}}{password}{{{{/if}}}}{{{{/each}}}}"
    );
    let stages = [
        ("bootstrapConfig", file("/etc/header", header)),
        ("provisioningConfig", file("/etc/registries", &password)),
    ];
    passes(&profile("Handlebars", &stages));

    let go = &blocks(GO_TEMPLATES, "")[0];
    let files = go.strip_prefix("files:\n").unwrap();
    passes(&profile("GoTemplate", &provisioning(files)));
}

#[test]
fn the_example_of_a_download_becomes_what_the_page_says() {
    let downloads = blocks(TEMPLATES, "Downloads");
    let script = file("/opt/fetch", &downloads[0]);
    let profile = profile("Handlebars", &[("provisioningConfig", script)]);
    passes(&profile);
    let input = format!("{}---\n{profile}", naming_profile("osp-mine"));
    let output = run("render - --stage provisioning", &input);
    let document = osm_user_data::yaml::read(out(&output)).unwrap().remove(0);
    let text = document["write_files"][0]["content"].as_str();
    assert_eq!(
        text,
        Some(format!("{}\n", downloads[1]).as_str()),
        "{}",
        err(&output)
    );
}
