//! cloud-init modules of a custom profile, in both stages.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use osm_api::names;
use osm_lab::machines::{Machine, unchanged};
use osm_lab::serve::relay::Identities;
use osm_testkit::{check, wait_for};
use serde_json::{Map, Value, json};

use super::join::nothing_failed;
use super::scenario_run::{BOOTSTRAPPED, READY, SAID, ScenarioRun};

/// What cloud-init's modules did in a stage.
struct Stage {
    name: &'static str,
    timezone: &'static str,
    /// PEM.
    certificate: String,
}

/// Where commands leave what they have seen.
const SEEN: &str = "/var/lib/lab";

/// No system knows it at first.
const UNKNOWN: &str = "Lab/Unknown";

/// cloud-init's, within a template of ours: two braces that are not for us.
const NTP_TEMPLATE: &str = "## template:jinja\n{% for server in servers %}from \\{{server}}\n{% endfor %}";

impl Stage {
    /// Values of this stage for modules that need no network.
    fn modules(&self) -> Map<String, Value> {
        let Self {
            name,
            timezone,
            certificate,
        } = self;
        let modules = json!({
            "apt": {"conf": format!("Lab::Stage \"{name}\";\n")},
            "bootcmd": [["mkdir", "-p", SEEN], format!("echo bootcmd >>{SEEN}/{name}")],
            "ca_certs": {"trusted": [certificate]},
            "chpasswd": {"expire": false, "list": [format!("{name}:{}", hash(name))]},
            "groups": [format!("of-{name}")],
            "mounts": [[format!("of-{name}"), format!("/mnt/{name}"), "tmpfs", "size=1m", "0", "0"]],
            // The one that images bring along is masked in ours, so this is another.
            "ntp": {"enabled": true, "ntp_client": "lab", "servers": [format!("{name}.example.com")], "config": {
                "check_exe": "sh", "confpath": format!("/etc/ntp-{name}.conf"), "packages": [],
                "service_name": "systemd-user-sessions", "template": NTP_TEMPLATE,
            }},
            "timezone": timezone,
            "users": [{"name": name, "groups": [format!("of-{name}")], "shell": "/bin/sh"}],
        });
        modules.as_object().cloned().unwrap_or_default()
    }

    /// Notes all that the modules have left; the last thing that a stage does of its own.
    fn look(&self) -> String {
        let Self { name, .. } = self;
        format!(
            "{{ getent passwd {name}; getent group of-{name}; grep ^{name}: /etc/shadow; cat /etc/timezone; \
             readlink /etc/localtime; cat /etc/apt/apt.conf.d/*cloud-init-config /etc/ntp-{name}.conf; \
             grep ' */mnt/{name} ' /proc/mounts; grep /mnt/{name} /etc/fstab; \
             }} >{SEEN}/{name}.found; cp /etc/ssl/certs/ca-certificates.crt {SEEN}/{name}.trusted; echo runcmd >>{SEEN}/{name}"
        )
    }

    fn has_taken_effect(&self, run: &ScenarioRun<'_>) -> Result<()> {
        let Self {
            name,
            timezone,
            certificate,
        } = self;
        let found = run.shell(&format!("cat {SEEN}/{name}.found"))?;
        let one_line = |pem: &str| pem.split_whitespace().collect::<String>();
        for line in [
            &"/bin/sh".to_owned(),
            &format!("{name}:{}", hash(name)),
            &format!("\n{timezone}\n"),
            &format!("/usr/share/zoneinfo/{timezone}"),
            &format!("Lab::Stage \"{name}\";"),
            &format!("from {name}.example.com"),
            &format!("of-{name} /mnt/{name} tmpfs rw"),
            &format!("of-{name}\t/mnt/{name}\ttmpfs\tsize=1m,comment=cloudconfig"),
        ] {
            ensure!(
                found.contains(line.as_str()),
                "{name}: {line:?} is missing:\n{found}"
            );
        }
        let group =
            |line: &str| line.starts_with(&format!("of-{name}:x:")) && line.ends_with(&format!(":{name}"));
        ensure!(
            found.lines().any(group),
            "{name}: the user is not in the group:\n{found}"
        );
        let trusted = run.shell(&format!("cat {SEEN}/{name}.trusted"))?;
        ensure!(
            one_line(&trusted).contains(&one_line(certificate)),
            "{name}: the certificate is not trusted"
        );
        Ok(())
    }
}

/// A hash of no password: nobody can log in with it.
fn hash(name: &str) -> String {
    format!("$6$lab${name}")
}

/// osp-ubuntu with modules of one's own before what it has.
fn profile(run: &ScenarioRun<'_>, stages: &[Stage; 2]) -> Result<Value> {
    let mut spec = osm_render::defaults()
        .into_iter()
        .find_map(|(name, spec)| (name == "osp-ubuntu").then_some(spec))
        .context("osp-ubuntu")?;
    spec.version = "v1.0.0".to_owned();
    for (config, stage) in [&mut spec.bootstrap_config, &mut spec.provisioning_config]
        .into_iter()
        .zip(stages)
    {
        let mut modules = stage.modules();
        let theirs = config.modules.as_ref().and_then(|modules| modules.get("runcmd"));
        let mut commands = vec![json!(stage.look())];
        commands.extend(
            theirs
                .and_then(Value::as_array)
                .context("osp-ubuntu's commands")?
                .iter()
                .cloned(),
        );
        modules.insert("runcmd".to_owned(), commands.into());
        config.modules = Some(Value::Object(modules));
    }
    Ok(json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
        "kind": "OperatingSystemProfile",
        "metadata": {"name": run.name(), "namespace": run.environment.installation.namespace},
        "spec": spec,
    }))
}

/// Modules take effect in both stages, those of the second one once; one that fails is named, and all are tried again.
pub async fn modules(run: &ScenarioRun<'_>) -> Result<()> {
    let control_plane = &run.environment.control_plane;
    let certificates = Identities::issue(
        control_plane.ca_pem(),
        &control_plane.ca_key_pem()?,
        &[run.address()],
    )?;
    let stages = [
        Stage {
            name: "bootstrap",
            timezone: "Asia/Tokyo",
            certificate: certificates.server.certificate,
        },
        Stage {
            name: "provisioning",
            timezone: UNKNOWN,
            certificate: certificates.impostor.certificate,
        },
    ];
    control_plane
        .apply_yaml(&profile(run, &stages)?.to_string())
        .await?;
    let pool = run.pool(&json!({names::PROFILE: run.name()})).await?;
    run.boot_with(
        &pool.user_data(run.environment, run.name()).await?,
        &unchanged,
        &[],
    )?;

    let line = run
        .console_says("osm-bootstrap: can't apply the document", SAID)
        .await?;
    ensure!(
        line.contains("module timezone failed"),
        "the console does not say which module: {line}"
    );
    run.has_not_joined(BOOTSTRAPPED).await?;
    ensure!(
        !times(run)?.contains_key("provisioning runcmd"),
        "commands run though a module has failed"
    );
    run.shell(&format!(
        "mkdir -p /usr/share/zoneinfo/Lab; cp /usr/share/zoneinfo/Europe/Oslo /usr/share/zoneinfo/{UNKNOWN}"
    ))?;
    wait_for("the document to be applied", run.patience(READY), async || {
        check(run.has(BOOTSTRAPPED)?)
    })
    .await?;
    for stage in &stages {
        stage.has_taken_effect(run)?;
    }
    the_network_was_left_alone(run)?;

    let before = times(run)?;
    run.with_machine(async |machine| machine.cut_power().await)
        .await?;
    run.machine(Machine::power_on)?;
    run.ready(READY).await?;
    let mut after = times(run)?;
    // cloud-init's own, at every boot.
    let boots = after.insert("bootstrap bootcmd".to_owned(), 1);
    ensure!(
        boots == Some(2),
        "the bootstrap document's bootcmd ran {boots:?} times in two boots"
    );
    ensure!(
        before == after,
        "after a reset, commands run again: {before:?}, then {after:?}"
    );
    ensure!(
        after.get("provisioning runcmd") == Some(&1),
        "commands ran more than once: {after:?}"
    );
    ensure!(
        run.shell("date +%Z")?.starts_with("CE"),
        "the reset has changed the time zone"
    );
    run.shell("mountpoint --quiet /mnt/provisioning")
        .context("the mount is gone after the reset")?;
    nothing_failed(run)
}

/// How often commands of each kind ran in each stage.
fn times(run: &ScenarioRun<'_>) -> Result<BTreeMap<String, usize>> {
    let mut times = BTreeMap::new();
    for stage in ["bootstrap", "provisioning"] {
        for command in run.shell(&format!("cat {SEEN}/{stage}"))?.lines() {
            *times.entry(format!("{stage} {command}")).or_default() += 1;
        }
    }
    Ok(times)
}

/// Since the bootstrap document was applied, by cloud-init itself.
fn the_network_was_left_alone(run: &ScenarioRun<'_>) -> Result<()> {
    let script = "find /etc/systemd/network /run/systemd/network /etc/network /etc/netplan -type f";
    let files = |more: &str| run.shell(&format!("{script} {more} 2>/dev/null || true"));
    ensure!(
        !files("")?.is_empty(),
        "nothing configures the network: this looks in the wrong place"
    );
    let written = files(&format!("-newer {SEEN}/bootstrap.found"))?;
    ensure!(written.is_empty(), "written anew: {written}");
    let journal = run.machine(|machine| machine.journal())?;
    let starts = journal
        .iter()
        .filter(|entry| entry.unit == "systemd-networkd.service" && entry.message.starts_with("Started "));
    let starts = starts.count();
    ensure!(starts == 1, "systemd-networkd was started {starts} times");
    let again = journal
        .iter()
        .find(|entry| entry.message.contains("Reconfiguring with"));
    ensure!(again.is_none(), "the network was configured again: {again:?}");
    Ok(())
}
