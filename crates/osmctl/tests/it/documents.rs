//! `osmctl new` and `schema`.

use serde_json::Value;

use super::{osmctl, out, prints, run, says, succeeds};

#[test]
fn a_new_profile_is_valid() {
    for (base, _) in osm_render::defaults() {
        let output = osmctl(&["new", "osp-mine", "--extends", &base], "");
        let text = out(&output);
        prints(&output, "# yaml-language-server: $schema=osp.schema.json\n");
        assert!(!text.contains('@'), "{text}");
        let profile = osm_user_data::yaml::read(text).unwrap().remove(0);
        assert_eq!(profile["spec"]["extends"], base.as_str());
        let linted = run("lint - --warnings-as-errors", text);
        succeeds(&linted);
        // What it suggests is valid as well. Sentences end in a full stop.
        let suggested = |line: &&str| line.starts_with("    # ") && !line.ends_with('.');
        assert!(text.lines().filter(suggested).count() > 10, "{text}");
        let lines = text.lines().map(|line| {
            if suggested(&line) {
                line.replacen("# ", "", 1)
            } else {
                line.to_owned()
            }
        });
        let all = lines.collect::<Vec<_>>().join("\n");
        let linted = run("lint - --warnings-as-errors", &all);
        assert!(linted.status.success(), "{}{all}", out(&linted));
    }
    let own = super::PROFILE.replace("osp-ubuntu", "osp-base");
    let output = run("new osp-mine --extends osp-base -f -", &own);
    prints(&output, "extends: osp-base");
    let output = run("new osp-mine --extends osp-nothing", "");
    says(&output, "profile osp-nothing does not exist");
    assert_eq!(run("new osp-mine", "").status.code(), Some(2));
}

#[test]
fn schemas_accept_what_is_right_and_nothing_else() {
    let schema = |kind: &str| serde_json::from_str::<Value>(out(&osmctl(&["schema", kind], ""))).unwrap();
    let profile = schema("profile");
    let text = profile.to_string();
    assert!(
        !text.contains("x-kubernetes") && !text.contains("nullable"),
        "{text}"
    );
    let spec = &profile["properties"]["spec"];
    assert_eq!(spec["additionalProperties"], false);
    assert!(
        spec["properties"]["bootstrapConfig"]["properties"]["files"]["items"]["properties"]["path"]
            .is_object()
    );
    let modules = &spec["properties"]["bootstrapConfig"]["properties"]["modules"];
    assert_ne!(modules["additionalProperties"], false, "{modules}");
    let settings = schema("settings");
    assert!(settings["properties"]["proxy"].is_object());
    assert_eq!(settings["additionalProperties"], false);
}
