//! `osmctl render -o dir=`, `osmctl diff` and `osmctl test`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use osm_api::config::OperatingSystemConfig;
use serde_json::Value;

use super::{MACHINE_DEPLOYMENT, PROFILE, err, osmctl, out};

fn both() -> String {
    format!("{MACHINE_DEPLOYMENT}{PROFILE}")
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_folder_has_the_files_of_the_machine_with_their_modes() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    let output = format!("dir={}", to.display());
    let rendered = osmctl(&["render", "-", "-o", &output], &both());
    assert!(rendered.status.success(), "{}", err(&rendered));
    let token = to.join("kube-system/workers/bootstrap/token");
    assert!(
        fs::read_to_string(&token)
            .unwrap()
            .starts_with("api/token for https://")
    );
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o7777, 0o600);
    let overview = fs::read_to_string(to.join("kube-system/workers/bootstrap.yaml")).unwrap();
    assert!(
        overview.contains("/token: \"0600\"") && overview.contains("ssh-ed25519 AAAA me"),
        "{overview}"
    );
    let overview = fs::read_to_string(to.join("kube-system/workers/provisioning.yaml")).unwrap();
    assert!(overview.contains("echo '1.34.2'"), "{overview}");

    // Written again, what is gone is removed, and nothing else.
    let other = both().replace("path: /token", "path: /etc/other");
    assert!(
        osmctl(&["render", "-", "-o", &output, "--stage", "bootstrap"], &other)
            .status
            .success()
    );
    assert!(!token.exists() && to.join("kube-system/workers/bootstrap/etc/other").exists());
    assert!(!to.join("kube-system/workers/provisioning.yaml").exists());

    // What osmctl did not write stays.
    write(&to, "kube-system/mine", "x");
    let refused = osmctl(&["render", "-", "-o", &output], &both());
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        err(&refused).contains("contains kube-system/mine, which osmctl did not write"),
        "{}",
        err(&refused)
    );
    assert!(to.join("kube-system/mine").exists() && !token.exists());
}

#[test]
fn nothing_is_written_outside_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (to, outside) = (folder.path().join("to"), folder.path().join("outside"));
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(&to).unwrap();
    symlink(&outside, to.join("kube-system")).unwrap();
    let output = format!("dir={}", to.display());
    let refused = osmctl(&["render", "-", "-o", &output], &both());
    assert!(err(&refused).contains("no plain file"), "{}", err(&refused));
    fs::remove_file(to.join("kube-system")).unwrap();
    for (from, with) in [
        ("name: workers", "name: ../workers"),
        ("namespace: kube-system", "namespace: .."),
        ("name: workers, ", ""),
    ] {
        let refused = osmctl(&["render", "-", "-o", &output], &both().replace(from, with));
        assert_eq!(refused.status.code(), Some(1), "{with}");
        assert!(err(&refused).contains("metadata.name"), "{}", err(&refused));
    }
    for path in ["/../../outside/x", "/a/../b", "a", "//a"] {
        let refused = osmctl(
            &["render", "-", "-o", &output],
            &both().replace("path: /token", &format!("path: {path}")),
        );
        assert!(
            err(&refused).contains("path must be absolute"),
            "{}",
            err(&refused)
        );
    }
    // A list that someone else wrote does not lead out of the folder, either.
    write(
        &to,
        "osmctl.json",
        "{\"format\": 1, \"files\": [\"../outside/x\"]}",
    );
    write(&outside, "x", "x");
    assert!(osmctl(&["render", "-", "-o", &output], &both()).status.success());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    let twice = format!("{}---{MACHINE_DEPLOYMENT}", both());
    let refused = osmctl(&["render", "-", "-o", &output], &twice);
    assert!(
        err(&refused).contains("kube-system/workers twice"),
        "{}",
        err(&refused)
    );
}

#[test]
fn objects_are_those_of_osc_controller() {
    let json = osmctl(&["render", "-", "-o", "json"], &both());
    let list: Value = serde_json::from_str(out(&json)).unwrap();
    let config = &list["items"][0];
    assert_eq!(config["kind"], "OperatingSystemConfig");
    assert_eq!(config["metadata"]["name"], "workers-kube-system-config");
    let spec = config["spec"].as_object().unwrap();
    assert_eq!(spec.len(), 1, "{spec:?}");
    assert_eq!(spec["poolRef"]["name"], "workers");
    let typed: OperatingSystemConfig = serde_json::from_value(config.clone()).unwrap();
    // This fails if the digest is not that of the documents.
    let content = osm_api::content::into_content(typed).unwrap();
    assert_eq!(content.profile.unwrap().name, "osp-ubuntu");
    assert_eq!(content.late_bound[0].id, "api/token");
    let yaml = osmctl(&["render", "-", "-o", "yaml"], &both());
    let documents = osm_render::yaml::read(out(&yaml)).unwrap();
    assert_eq!(documents, std::slice::from_ref(config));
}

#[test]
fn a_diff_is_file_by_file_and_its_exit_codes_are_those_of_kubectl() {
    let folder = tempfile::tempdir().unwrap();
    let pool = write(folder.path(), "pool.yaml", MACHINE_DEPLOYMENT);
    let old = write(folder.path(), "old.yaml", PROFILE);
    let changed = PROFILE
        .replace("permissions: 600", "permissions: 400")
        .replace("as=\\\"raw\\\"}} for", "as=\\\"raw\\\"}} of")
        .replace(
            "    files:",
            "    files:\n      - {path: /new, content: {inline: {data: \"x\\n\"}}}",
        );
    let new = write(folder.path(), "new.yaml", &changed);
    let diff = |arguments: &[&str]| osmctl(&[&["diff", "-f", &pool], arguments].concat(), "");
    let output = diff(&[&old, &new]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let expected = "\
--- old/kube-system/workers/bootstrap.yaml
+++ new/kube-system/workers/bootstrap.yaml
@@ -1,6 +1,7 @@
 modes:
   /etc/machine-name: \"0600\"
-  /token: \"0600\"
+  /new: \"0644\"
+  /token: \"0400\"
 units: {}
 other:
   hostname: \"<MACHINE_NAME>\"
--- /dev/null
+++ new/kube-system/workers/bootstrap/new
@@ -0,0 +1,1 @@
+x
--- old/kube-system/workers/bootstrap/token
+++ new/kube-system/workers/bootstrap/token
@@ -1,1 +1,1 @@
-api/token for https://api.cluster.example:6443
\\ No newline at end of file
+api/token of https://api.cluster.example:6443
\\ No newline at end of file
";
    assert_eq!(
        out(&output)
            .replace("@@ -0,0 +1 @@", "@@ -0,0 +1,1 @@")
            .replace("@@ -1 +1 @@", "@@ -1,1 +1,1 @@"),
        expected
    );
    assert!(!out(&output).contains('\x1b'), "no colour in a pipe");

    let colored = diff(&[&old, &new, "--color", "always"]);
    assert!(out(&colored).contains("\x1b[32m+x\x1b[0m"), "{}", out(&colored));
    let names = diff(&[&old, &new, "-o", "names"]);
    assert!(
        out(&names).contains("added kube-system/workers/bootstrap/new\n"),
        "{}",
        out(&names)
    );
    let json: Value = serde_json::from_str(out(&diff(&[&old, &new, "-o", "json"]))).unwrap();
    assert_eq!(json["differences"].as_array().unwrap().len(), 3);

    let same = diff(&[&old, &old]);
    assert_eq!((same.status.code(), out(&same)), (Some(0), ""), "{}", err(&same));
    for wrong in [&["/nowhere", new.as_str()][..], &[&old, "/nowhere"], &[&old], &[]] {
        let output = diff(wrong);
        assert!(output.status.code().is_some_and(|code| code > 1), "{wrong:?}");
    }
    let empty = write(
        folder.path(),
        "settings.yaml",
        "pauseImage: registry.example/pause:3.10\n",
    );
    let output = osmctl(&["diff", &empty, &new], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("contains no profile and no MachineDeployment"),
        "{}",
        err(&output)
    );

    // A folder of another release.
    let folder = folder.path().join("before");
    let to = format!("dir={}", folder.display());
    assert!(osmctl(&["render", &pool, &old, "-o", &to], "").status.success());
    let written = osmctl(&["diff", folder.to_str().unwrap(), &new, "-f", &pool], "");
    assert_eq!(out(&written), out(&output_of(&old, &new, &pool)));
}

#[test]
fn profiles_without_pools_are_compared_with_sample_pools() {
    let folder = tempfile::tempdir().unwrap();
    let profile = |data: &str| {
        let clouds = PROFILE.replace(
            "[{name: openstack}]",
            "[{name: openstack}, {name: aws}, {name: hetzner}]",
        );
        clouds.replace("echo {{shell kubelet.version}}", data)
    };
    let old = write(folder.path(), "old.yaml", &profile("echo"));
    let diff = |new: &str| {
        osmctl(
            &[
                "diff",
                &old,
                &write(folder.path(), "new.yaml", &profile(new)),
                "-o",
                "names",
            ],
            "",
        )
    };
    for (new, changed) in [
        (
            "echo {{kubelet.version}}",
            // Around the change, the settings add lines.
            "SAMPLES/osp-ubuntu/{aws-everything-set,hetzner-everything-set,openstack-everything-set}/provisioning.yaml\n\
             changed SAMPLES/osp-ubuntu/{aws,hetzner,openstack}/provisioning.yaml",
        ),
        (
            "echo{{#if proxy.http}} {{proxy.http}}{{/if}}",
            "SAMPLES/osp-ubuntu/{aws-everything-set,hetzner-everything-set,openstack-everything-set}/provisioning.yaml",
        ),
        (
            "echo{{#if (eq cloud.name \\\"aws\\\")}} aws{{/if}}",
            "SAMPLES/osp-ubuntu/aws-everything-set/provisioning.yaml\n\
             changed SAMPLES/osp-ubuntu/aws/provisioning.yaml",
        ),
    ] {
        let output = diff(new);
        assert_eq!(output.status.code(), Some(1), "{new}: {}", err(&output));
        assert_eq!(out(&output), format!("changed {changed}\n"));
    }
    assert_eq!(diff("echo").status.code(), Some(0));
}

fn output_of(old: &str, new: &str, pool: &str) -> std::process::Output {
    osmctl(&["diff", old, new, "-f", pool], "")
}

#[test]
fn cases_are_recorded_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tests/one/case.yaml", &both());
    write(folder.path(), "tests/more/two/case.yaml", MACHINE_DEPLOYMENT);
    let tests = folder.path().join("tests");
    let tests = tests.to_str().unwrap();
    let profile = write(
        folder.path(),
        "profiles/mine.yaml",
        &PROFILE.replace("osp-ubuntu", "osp-other"),
    );
    let shared = ["test", tests, "-f", &profile];
    let with = |argument| [&shared[..], &[argument]].concat();

    let nothing = osmctl(&shared, "");
    assert_eq!(nothing.status.code(), Some(1));
    assert!(
        out(&nothing).contains("nothing is recorded in"),
        "{}",
        out(&nothing)
    );
    assert!(osmctl(&with("--bless"), "").status.success());
    let good = osmctl(&shared, "");
    assert!(
        good.status.success() && out(&good).matches("ok ").count() == 2,
        "{}",
        out(&good)
    );

    write(
        folder.path(),
        "tests/one/case.yaml",
        &both().replace(" for ", " of "),
    );
    let bad = osmctl(&shared, "");
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        out(&bad).contains("-api/token for https") && out(&bad).contains("+api/token of https"),
        "{}",
        out(&bad)
    );
    assert!(err(&bad).contains("1 of 2 cases failed"), "{}", err(&bad));
    let json: Value =
        serde_json::from_str(out(&osmctl(&[&shared[..], &["-o", "json"]].concat(), ""))).unwrap();
    let passed: Vec<bool> = json["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["passed"].as_bool().unwrap())
        .collect();
    assert_eq!(passed, [true, false]);
    assert!(osmctl(&with("--bless"), "").status.success());
    assert!(osmctl(&shared, "").status.success());

    // A file by hand, and an input that can't be rendered.
    write(
        folder.path(),
        "tests/one/expected/kube-system/workers/bootstrap/more",
        "x\n",
    );
    assert!(out(&osmctl(&shared, "")).contains("-x"));
    write(
        folder.path(),
        "tests/one/case.yaml",
        &both().replace("kubelet.version", "kubelet.versin"),
    );
    assert!(out(&osmctl(&shared, "")).contains("there is no field"));
    let empty = folder.path().join("profiles");
    let none = osmctl(&["test", empty.to_str().unwrap()], "");
    assert!(err(&none).contains("contains no case"), "{}", err(&none));
}
