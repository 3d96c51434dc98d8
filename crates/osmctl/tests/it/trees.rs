//! `osmctl render -o dir=`, `osmctl diff` and `osmctl test`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::{MACHINE_DEPLOYMENT, PROFILE, err, osmctl, out, prints, run, says, succeeds};

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
    succeeds(&rendered);
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
    succeeds(&run(&format!("render - -o {output} --stage bootstrap"), &other));
    assert!(!token.exists() && to.join("kube-system/workers/bootstrap/etc/other").exists());
    assert!(!to.join("kube-system/workers/provisioning.yaml").exists());

    // What osmctl did not write stays.
    write(&to, "kube-system/mine", "x");
    let refused = osmctl(&["render", "-", "-o", &output], &both());
    assert_eq!(refused.status.code(), Some(1));
    says(&refused, "contains kube-system/mine, which osmctl did not write");
    assert!(to.join("kube-system/mine").exists() && !token.exists());
}

#[test]
fn nothing_is_written_outside_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (to, outside) = (folder.path().join("to"), folder.path().join("outside"));
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(&to).unwrap();
    symlink(&outside, to.join("kube-system")).unwrap();
    let render = |input: &str| run(&format!("render - -o dir={}", to.display()), input);
    let refused = render(&both());
    says(&refused, "isn't a regular file");
    fs::remove_file(to.join("kube-system")).unwrap();
    let refused = render(&both().replace("namespace: kube-system", "namespace: .."));
    says(&refused, "metadata.namespace");
    let refused = render(&both().replace("path: /token", "path: /../../outside/x"));
    says(&refused, "path must be absolute");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    let twice = format!("{}---{MACHINE_DEPLOYMENT}", both());
    let refused = render(&twice);
    says(&refused, "kube-system/workers twice");
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

    let same = diff(&[&old, &old]);
    assert_eq!((same.status.code(), out(&same)), (Some(0), ""), "{}", err(&same));
    for wrong in [&["/nowhere", new.as_str()][..], &[&old, "/nowhere"], &[&old], &[]] {
        let output = diff(wrong);
        assert!(output.status.code().is_some_and(|code| code > 1), "{wrong:?}");
    }
    let output = osmctl(&["diff", &old, &new], "");
    assert_eq!(output.status.code(), Some(2));
    says(&output, "contains no MachineDeployment; provide");

    // A folder of another release.
    let folder = folder.path().join("before");
    let to = format!("dir={}", folder.display());
    assert!(osmctl(&["render", &pool, &old, "-o", &to], "").status.success());
    let written = osmctl(&["diff", folder.to_str().unwrap(), &new, "-f", &pool], "");
    assert_eq!(out(&written), out(&diff(&[&old, &new])));
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
    prints(&nothing, "nothing is recorded in");
    assert!(osmctl(&with("--bless"), "").status.success());
    let good = osmctl(&shared, "");
    assert!(
        good.status.success() && out(&good).matches("ok ").count() == 2,
        "{}",
        out(&good)
    );

    let case = |text: &str| write(folder.path(), "tests/one/case.yaml", text);
    case(&both().replace(" for ", " of "));
    let bad = osmctl(&shared, "");
    assert_eq!(bad.status.code(), Some(1));
    prints(&bad, "-api/token for https");
    prints(&bad, "+api/token of https");
    says(&bad, "1 of 2 cases failed");
    assert!(osmctl(&with("--bless"), "").status.success());
    assert!(osmctl(&shared, "").status.success());

    // An input that can't be rendered.
    case(&both().replace("kubelet.version", "kubelet.versin"));
    prints(&osmctl(&shared, ""), "there is no field");
    let empty = folder.path().join("profiles");
    let none = osmctl(&["test", empty.to_str().unwrap()], "");
    says(&none, "contains no case");
}
