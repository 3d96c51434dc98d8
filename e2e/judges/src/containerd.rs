//! Judges the configuration file of containerd and the `hosts.toml` files of its registries.

use std::process::Command;

use toml::{Table, Value};

use crate::complaint::{Complaints, Finding, judge_once};
use crate::program::{ask, go_program};

/// Judges a containerd configuration; see [`containerd_configs`].
///
/// # Errors
/// What is wrong with it.
pub fn containerd_config(name: &str, text: &str) -> Result<(), Complaints> {
    containerd_configs(&[(name, text)])
}

/// Judges containerd configurations (name, text; versions 2 to 4) by the plugins of containerd 2.4.2: unknown
/// keys, plugins, snapshotters, runtime options and an undeclared default runtime are refused. Imported files
/// are not followed.
///
/// # Errors
/// What is wrong with them.
pub fn containerd_configs(documents: &[(&str, &str)]) -> Result<(), Complaints> {
    judge_once("containerd configuration", documents, |texts| {
        let answers: Vec<Vec<String>> = ask(&mut Command::new(go_program("containerd", "go.mod")?), &texts)?;
        Ok(without_places(answers))
    })
}

/// Findings of a judge that says the place in its message.
pub(crate) fn without_places(answers: Vec<Vec<String>>) -> Vec<Vec<Finding>> {
    answers
        .into_iter()
        .map(|all| all.into_iter().map(|message| (String::new(), message)).collect())
        .collect()
}

/// What `hosts.toml` may say of a host, with its type (containerd ignores what it does not know, and the
/// whole file if a type is wrong).
const HOST_KEYS: [(&str, &[&str]); 7] = [
    ("capabilities", &["array"]),
    ("ca", &["string", "array"]),
    ("client", &["string", "array"]),
    ("skip_verify", &["boolean"]),
    ("header", &["table"]),
    ("override_path", &["boolean"]),
    ("dial_timeout", &["string"]),
];

const CAPABILITIES: [&str; 4] = ["pull", "resolve", "push", "referrers"];

/// Judges a `hosts.toml` of containerd 2.4's `certs.d`: known keys with the right types, hosts with a scheme,
/// each under a header of its own (containerd tries them in the order of their `[host."…"]` headers, and does
/// not see any written otherwise).
///
/// # Errors
/// What is wrong with it.
pub fn hosts_toml(name: &str, text: &str) -> Result<(), Complaints> {
    judge_once("hosts.toml", &[(name, text)], |texts| {
        Ok(texts.iter().map(|text| hosts(text)).collect())
    })
}

fn hosts(text: &str) -> Vec<Finding> {
    let mut table = match text.parse::<Table>() {
        Ok(table) => table,
        Err(error) => return vec![(String::new(), error.to_string())],
    };
    let mut findings = Vec::new();
    match table.remove("server") {
        Some(Value::String(server)) => findings.extend(url("server", &server)),
        Some(_) => findings.push(("server".to_owned(), "is not a string".to_owned())),
        None => {}
    }
    match table.remove("host") {
        Some(Value::Table(hosts)) => {
            for (url_of_host, host) in hosts {
                let place = format!("host.{url_of_host:?}");
                findings.extend(url(&place, &url_of_host));
                if !has_header(text, &url_of_host) {
                    findings.push((
                        place.clone(),
                        "has no [host.\"…\"] header: containerd does not see it".to_owned(),
                    ));
                }
                match host {
                    Value::Table(host) => findings.extend(host_keys(&format!("{place}."), &host)),
                    _ => findings.push((place, "is not a table".to_owned())),
                }
            }
        }
        Some(_) => findings.push(("host".to_owned(), "is not a table".to_owned())),
        None => {}
    }
    findings.extend(host_keys("", &table));
    findings
}

fn host_keys(prefix: &str, host: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, value) in host {
        let place = format!("{prefix}{key}");
        match HOST_KEYS.iter().find(|(known, _)| known == key) {
            None => findings.push((place, "unknown key".to_owned())),
            Some((_, types)) if !types.contains(&value.type_str()) => {
                findings.push((
                    place,
                    format!("is a {}, not {}", value.type_str(), types.join(" or ")),
                ));
            }
            Some(("capabilities", _)) => {
                let unknown = value.as_array().into_iter().flatten();
                let unknown = unknown.filter(|c| !c.as_str().is_some_and(|c| CAPABILITIES.contains(&c)));
                findings.extend(unknown.map(|c| (place.clone(), format!("unknown capability {c}"))));
            }
            Some(_) => {}
        }
    }
    findings
}

fn url(place: &str, url: &str) -> Option<Finding> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let good = rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace)
    });
    (!good).then(|| (place.to_owned(), format!("{url:?} is not an http(s) URL")))
}

fn has_header(text: &str, host: &str) -> bool {
    let headers = [format!("[host.\"{host}\""), format!("[host.'{host}'")];
    text.lines()
        .any(|line| headers.iter().any(|header| line.trim_start().starts_with(header)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
version = 3

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "registry.k8s.io/pause:3.10"

[plugins."io.containerd.cri.v1.images".registry]
config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = true
"#;

    #[test]
    fn what_containerd_would_ignore_is_refused() {
        let cases = [
            (
                "key",
                GOOD.replace("snapshotter =", "snapshoter ="),
                "unknown key snapshoter",
            ),
            (
                "top-level key",
                GOOD.replace("version = 3", "version = 3\nstat = \"/x\""),
                "unknown key stat",
            ),
            (
                "plugin",
                GOOD.replace("cri.v1.images\"]", "cri.v1.image\"]"),
                "no such plugin",
            ),
            (
                "runtime option",
                GOOD.replace("SystemdCgroup", "SystemCgroup"),
                "options: unknown key SystemCgroup",
            ),
            (
                "snapshotter",
                GOOD.replace("\"overlayfs\"", "\"overlay2\""),
                "no snapshotter \"overlay2\"",
            ),
            (
                "runtime",
                GOOD.replace("_name = \"runc\"", "_name = \"crun\""),
                "no runtime \"crun\"",
            ),
            (
                "type",
                GOOD.replace("\"overlayfs\"", "1"),
                "cannot decode TOML integer",
            ),
            ("version", GOOD.replace("version = 3", ""), "version: 0"),
            ("syntax", GOOD.replace("version = 3", "version 3"), "line 2"),
        ];
        for (name, text, expected) in cases {
            let complaints = containerd_config(name, &text).expect_err(name).to_string();
            assert!(complaints.contains(expected), "{name}: {complaints}");
        }
    }

    #[test]
    fn hosts_are_judged_key_by_key() {
        let good = "server = \"https://registry-1.docker.io\"\n\n[host.\"https://mirror.example.com\"]\n\
            capabilities = [\"pull\", \"resolve\"]\nca = \"/etc/ssl/mirror.pem\"\n\
            [host.\"https://mirror.example.com\".header]\nauthorization = \"Basic abc\"\n";
        hosts_toml("good", good).unwrap();
        let cases = [
            (
                "key",
                good.replace("ca =", "cacert ="),
                "host.\"https://mirror.example.com\".cacert: unknown key",
            ),
            (
                "capability",
                good.replace("\"resolve\"", "\"fetch\""),
                "unknown capability \"fetch\"",
            ),
            (
                "type",
                good.replace("ca = \"/etc/ssl/mirror.pem\"", "skip_verify = \"yes\""),
                "is a string, not boolean",
            ),
            (
                "scheme",
                good.replace("[host.\"https://", "[host.\""),
                "is not an http(s) URL",
            ),
            (
                "inline",
                "host = {\"https://a\" = {}}\n".to_owned(),
                "containerd does not see it",
            ),
            (
                "late server",
                "[host.\"https://a\"]\nserver = \"https://b\"\n".to_owned(),
                "server: unknown key",
            ),
            ("syntax", "server = https://a\n".to_owned(), "TOML parse error"),
        ];
        for (name, text, expected) in cases {
            let complaints = hosts_toml(name, &text).expect_err(name).to_string();
            assert!(complaints.contains(expected), "{name}: {complaints}");
        }
    }
}
