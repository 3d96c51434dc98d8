//! Flags that the kubelet no longer has.

use osm_api::pool::Pool;

use super::{Conflict, Text, gate, statements};

/// The minor version of Kubernetes 1 that no longer has a flag of the kubelet, or one that is known not to have it any more: from
/// cmd/kubelet/app/options and pkg/kubelet/config of Kubernetes. A test compares those of the versions that profiles are tested with.
pub const REMOVED: &[(u64, &[&str])] = &[
    (12, &["cadvisor-port"]),
    (
        15,
        &[
            "allow-privileged",
            "experimental-fail-swap-on",
            "host-ipc-sources",
            "host-network-sources",
            "host-pid-sources",
        ],
    ),
    (18, &["containerized"]),
    (20, &["bootstrap-checkpoint-path", "experimental-dockershim"]),
    (
        22,
        &[
            "chaos-chance",
            "enable-cadvisor-json-endpoints",
            "experimental-logging-sanitization",
            "redirect-container-streaming",
        ],
    ),
    (23, &["experimental-bootstrap-kubeconfig", "seccomp-profile-root"]),
    (
        24,
        &[
            "cni-bin-dir",
            "cni-cache-dir",
            "cni-conf-dir",
            "docker",
            "docker-endpoint",
            "docker-env-metadata-whitelist",
            "docker-only",
            "docker-root",
            "docker-tls",
            "docker-tls-ca",
            "docker-tls-cert",
            "docker-tls-key",
            "dynamic-config-dir",
            "experimental-check-node-capabilities-before-mount",
            "experimental-dockershim-root-directory",
            "image-pull-progress-deadline",
            "network-plugin",
            "network-plugin-mtu",
            "non-masquerade-cidr",
            "really-crash-for-testing",
        ],
    ),
    (25, &["experimental-kernel-memcg-notification"]),
    (
        // KEP-2845.
        26,
        &[
            "add-dir-header",
            "alsologtostderr",
            "log-backtrace-at",
            "log-dir",
            "log-file",
            "log-file-max-size",
            "logtostderr",
            "one-output",
            "skip-headers",
            "skip-log-headers",
            "stderrthreshold",
        ],
    ),
    (27, &["container-runtime", "master-service-namespace"]),
    (30, &["azure-container-registry-config"]),
    (
        31,
        &[
            "iptables-drop-bit",
            "iptables-masquerade-bit",
            "keep-terminated-pod-volumes",
        ],
    ),
    (34, &["cloud-config", "register-schedulable"]),
    (35, &["pod-infra-container-image"]),
];

/// A flag that no longer takes all values.
struct Values {
    flag: &'static str,
    /// The first minor version that takes fewer.
    since: u64,
    is_taken: fn(&str) -> bool,
    taken: &'static str,
}

const VALUES: [Values; 2] = [
    Values {
        flag: "cloud-provider",
        since: 29,
        is_taken: |value| value == "external",
        taken: "only external",
    },
    Values {
        flag: "container-runtime-endpoint",
        since: 24,
        is_taken: |value| !value.contains("dockershim"),
        taken: "no socket of dockershim, which no longer exists",
    },
];

/// Commands that run another one.
const WRAPPERS: [&str; 21] = [
    "bash",
    "chroot",
    "command",
    "do",
    "else",
    "elif",
    "env",
    "eval",
    "exec",
    "if",
    "ionice",
    "nice",
    "nohup",
    "setsid",
    "sh",
    "stdbuf",
    "sudo",
    "systemd-run",
    "then",
    "until",
    "while",
];

/// Adds the flags of a unit, script, command or environment file that the kubelet of a pool does not have.
pub(super) fn conflicts(text: &Text<'_>, pool: &Pool, found: &mut Vec<Conflict>) {
    let is_about_kubelet = |text: &str| text.contains("kubelet") || text.contains("KUBELET");
    let of_kubelet = is_about_kubelet(&text.path);
    if !(of_kubelet || is_about_kubelet(&text.text)) || !text.text.contains("--") {
        return;
    }
    let statements = statements(&text.text);
    // The arguments may be put together in other lines than the one that runs the kubelet.
    let of_kubelet = of_kubelet || statements.iter().any(|statement| runs_kubelet(statement));
    let minor = pool.kubelet_version.minor;
    for statement in statements
        .iter()
        .filter(|statement| of_kubelet || is_about_kubelet(statement))
    {
        for (name, value) in flags(statement) {
            let subject = format!("--{name}");
            if let Some(removed) = removed_in(&name).filter(|removed| minor >= *removed) {
                if is_looked_for(&statements, &subject) {
                    continue;
                }
                let problem = format!(
                    "is no flag of kubelet 1.{removed} and newer, which do not start with it; remove it, or write it only for older ones"
                );
                found.push(text.conflict(subject, problem));
            } else if let Some(values) = VALUES
                .iter()
                .find(|values| values.flag == name && minor >= values.since)
                && is_literal(value)
                && !(values.is_taken)(value)
            {
                let problem = format!(
                    "has a value that kubelets no longer take; they take {}",
                    values.taken
                );
                found.push(text.conflict(subject, problem));
            } else if name == "feature-gates" {
                let gates = value.split(',').filter_map(|gate| gate.split_once('='));
                for (name, value) in gates.filter(|(name, value)| is_literal(name) && is_literal(value)) {
                    gate(text, name, value.parse().ok(), pool, found);
                }
            }
        }
    }
}

/// The first minor version without a flag.
fn removed_in(flag: &str) -> Option<u64> {
    let mut versions = REMOVED.iter();
    versions.find_map(|(minor, flags)| flags.contains(&flag).then_some(*minor))
}

/// A script that looks for a flag in the output of `kubelet --help` decides itself.
fn is_looked_for(statements: &[String], flag: &str) -> bool {
    let mut looking = statements.iter().filter(|statement| statement.contains("grep"));
    looking.any(|statement| statement.contains(flag))
}

/// Whether a value is known before the machine runs a script.
fn is_literal(value: &str) -> bool {
    !value.is_empty() && !value.contains(['$', '%', '`'])
}

/// The flags in a statement with their values, which may be empty. The kubelet takes underscores for hyphens.
fn flags(statement: &str) -> impl Iterator<Item = (String, &str)> {
    statement.match_indices("--").filter_map(|(at, dashes)| {
        let before = statement.get(..at)?.chars().next_back();
        if before.is_some_and(|c| !c.is_whitespace() && !"=\"'`([{,:".contains(c)) {
            return None;
        }
        let rest = statement.get(at + dashes.len()..)?;
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')));
        let (name, rest) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        let is_quote = |c: char| matches!(c, '"' | '\'');
        let value = rest
            .strip_prefix('=')
            .unwrap_or(rest)
            .trim_start()
            .trim_start_matches(is_quote);
        let value = value.split(|c: char| c.is_whitespace() || is_quote(c)).next();
        name.starts_with(|c: char| c.is_ascii_lowercase())
            .then(|| (name.replace('_', "-"), value.unwrap_or_default()))
    })
}

/// Whether a statement runs the kubelet, itself or by another command.
fn runs_kubelet(statement: &str) -> bool {
    if !statement.contains("kubelet") {
        return false;
    }
    let statement = statement.trim_start();
    let statement = statement.strip_prefix("ExecStart=").unwrap_or(statement);
    let mut commands = statement.split([';', '&', '|', '(', ')', '{', '}', '`']);
    commands.any(|command| {
        let words = command
            .split_whitespace()
            .map(|word| word.trim_matches(['"', '\'']));
        let mut names = words.filter_map(|word| {
            // systemd takes these signs before a path.
            let path = word.trim_start_matches(['-', '@', ':', '+', '!']);
            let is_option = word.starts_with('-') && !path.starts_with('/');
            (!is_option).then(|| path.rsplit('/').next().unwrap_or_default())
        });
        let is_wrapper = |name: &str| {
            WRAPPERS.contains(&name)
                || name.is_empty()
                || name.contains('=')
                || name.ends_with(".sh")
                || name.parse::<u8>().is_ok()
        };
        names.find(|name| !is_wrapper(name)) == Some("kubelet")
    })
}
