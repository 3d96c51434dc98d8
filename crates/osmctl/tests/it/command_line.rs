//! Command lines that end with an error, in one table: its exit code, and what it says. No error repeats a
//! value.

use super::{MACHINE_DEPLOYMENT, PROFILE, err, naming_profile, out, run};

/// A profile that downloads crictl.
const DOWNLOADING: &str = r#"{{download-url \"crictl\" arch=\"$arch\"}}"#;

#[test]
fn mistakes_end_with_the_next_step_and_the_exit_code() {
    let md = |from: &str, to: &str| MACHINE_DEPLOYMENT.replace(from, to);
    let with_profile = |from: &str, to: &str| format!("{MACHINE_DEPLOYMENT}{}", PROFILE.replace(from, to));
    let folder = tempfile::tempdir().unwrap();
    let off = folder.path().join("off.yaml");
    std::fs::write(&off, "downloads: {crictl: {enabled: false}}").unwrap();
    let without_crictl = format!("urls -f - --settings {}", off.display());
    let render = "render -f - --stage bootstrap";
    let own = naming_profile("osp-mine");
    let pool = MACHINE_DEPLOYMENT.to_owned();
    let none = String::new;
    #[rustfmt::skip] // A line for each row.
    let rows = [
        (render, own.clone(), 1, "profile osp-mine does not exist; provide it with --profile"),
        (render, md("cloudProvider:", "cloudProvidr:"), 1, "cloudProvidr"),
        (render, none(), 1, "provide exactly one"),
        (render, format!("{pool}---{pool}"), 1, "provide exactly one"),
        (render, with_profile("kubelet.version", "kubelet.versin"), 1,
            "profile osp-ubuntu: provisioningConfig.modules.runcmd[0], line 1, column 6: there is no field"),
        (render, with_profile("Engine: Handlebars", "Engine: GoTemplate"), 1, "function \"late\" not defined"),
        ("render -f /nowhere --stage bootstrap", none(), 1, "/nowhere"),
        ("render -f - --profile mine --stage bootstrap", pool.clone(), 1, "osp-ubuntu) and not a file: mine: error: cannot read it"),
        ("render -f -", none(), 2, "--stage"),
        ("paint", none(), 2, "paint"),
        ("", none(), 2, "Commands:"),
        ("urls -f -", PROFILE.to_owned(), 1, "contains no MachineDeployment; provide at least one, or use --profile"),
        ("urls -f -", own, 1, "profile osp-mine does not exist"),
        (&without_crictl, with_profile("echo {{shell kubelet.version}}", DOWNLOADING), 1,
            "download-url: downloads.crictl.enabled of the settings is false; enable it there, or test {{#if"),
        ("urls -f - --settings /nowhere", pool.clone(), 1, "/nowhere: error: cannot read it"),
        ("urls", none(), 2, "--filename"),
        ("urls --profile osp-ubuntu", none(), 2, "--kubelet-version"),
        ("urls --kubelet-version 1.34.4", none(), 2, "--profile"),
        ("urls -f - --kubelet-version 1.34.4 --profile osp-ubuntu", pool.clone(), 2, "cannot be used with"),
        ("urls --kubelet-version latest --profile osp-ubuntu", none(), 2, "is not a version"),
        ("urls -f - --arch mips", pool, 2, "mips"),
        ("status --request-timeout soon", none(), 2, "is not a duration"),
        ("status --request-timeout 0s", none(), 2, "is not a duration"),
        ("kubeconfigs --duration 5m", none(), 2, "ten minutes"),
        ("migrate script --worker-context w", none(), 1, "docs/kkp.md have the commands"),
        ("diff --cluster -f x", none(), 2, "cannot be used with"),
        ("diff --pool p a b", none(), 2, "--cluster"),
        ("show", none(), 2, "<POOL>"),
        ("lint -o xml", none(), 2, "invalid value"),
        ("man /proc/nowhere", none(), 1, "cannot write to /proc/nowhere"),
        ("migrate apply", none(), 2, "unrecognized subcommand"),
    ];
    for (words, input, code, text) in rows {
        let output = run(words, &input);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", err(&output));
        assert!(err(&output).contains(text), "{words:?}: {text}: {}", err(&output));
        assert!(
            !err(&output).contains("hunter2") && out(&output).is_empty(),
            "{words:?}"
        );
    }
}

#[test]
fn man_pages_and_the_tables_of_what_works_together_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert!(run(&format!("man {}", pages.display()), "").status.success());
    let page = std::fs::read_to_string(pages.join("osmctl-status.1")).unwrap();
    assert!(page.contains("Print again every two seconds"), "{page}");
    let output = run("compatibility", "");
    let tables = out(&output);
    assert!(tables.starts_with("## Operating systems\n"), "{tables}");
    assert!(
        tables.contains("| openstack | emulated |") && tables.contains("| validated | The programs"),
        "{tables}"
    );
}
