//! A report for people and programs.

use serde_json::{Value, json};

use super::{Outcome, PoolReport, ProfileName, ProfileReport, Report};
use crate::difference::Difference;
use crate::output;
use crate::snapshot::Snapshot;

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Equal => "equal",
            Self::Differs(_) => "differs",
            Self::NotGenerated => "notGenerated",
            Self::Migrated => "migrated",
        }
    }

    fn differences(&self) -> &[Difference] {
        match self {
            Self::Differs(differences) => differences,
            _ => &[],
        }
    }
}

/// A report for people.
pub fn text(report: &Report, with_lines: bool, with_color: bool) -> String {
    let mut text = String::new();
    for pool in &report.pools {
        text.push_str(&of_pool(pool, with_color));
        for difference in pool.outcome.differences() {
            text.push_str(&match with_lines {
                true => difference.unified(with_color),
                false => in_one_line(difference),
            });
        }
    }
    if !report.unused.is_empty() {
        text.push_str("\nProfiles that no pool uses:\n");
        let lines: Vec<[String; 2]> = report.unused.iter().map(of_profile).collect();
        text.push_str(&output::table(&lines));
    }
    text.push_str(&format!("\n{}\n", summary(report)));
    text
}

fn of_pool(pool: &PoolReport, with_color: bool) -> String {
    let PoolReport {
        namespace,
        name,
        profile,
        outcome,
        warnings,
    } = pool;
    let (color, result) = match outcome {
        Outcome::Refused(refusal) => (
            output::RED,
            format!(
                "refused: {} [{}]",
                output::one_line(&refusal.message),
                refusal.reason
            ),
        ),
        Outcome::Equal => (output::GREEN, "equal".to_owned()),
        Outcome::Differs(differences) => (
            output::CYAN,
            format!("{} in {}", "differs", output::count(differences.len(), "file")),
        ),
        Outcome::NotGenerated => (
            "",
            "OSM renders it; the Go implementation has no config for it".to_owned(),
        ),
        Outcome::Migrated => ("", "OSM renders it already".to_owned()),
    };
    let mut text = format!(
        "{namespace}/{name}: {}\n",
        output::paint(color, &output::visible(&result), with_color)
    );
    if let Some(profile) = profile {
        text.push_str(&format!("  profile: {}{}\n", named(profile), replaced(profile)));
    }
    for warning in warnings {
        text.push_str(&format!("  warning: {}\n", output::visible(warning)));
    }
    text
}

fn named(profile: &ProfileName) -> String {
    let ProfileName {
        kind,
        namespace,
        name,
        version,
        ..
    } = profile;
    format!("{kind} {namespace}/{name} {version}")
}

/// What becomes of a profile with the name of a default one.
fn replaced(profile: &ProfileName) -> String {
    match &profile.replaced_by {
        Some(version) => format!("; osp-controller replaces it with its own {version}"),
        None => String::new(),
    }
}

fn in_one_line(difference: &Difference) -> String {
    let (added, removed) = difference.changed_lines();
    format!(
        "  {} {} (+{added} -{removed})\n",
        difference.kind(),
        difference.path
    )
}

fn of_profile(report: &ProfileReport) -> [String; 2] {
    let result = match &report.refusal {
        Some(refusal) => format!(
            "refused: {} [{}]",
            output::one_line(&refusal.message),
            refusal.reason
        ),
        None => format!("accepted{}", replaced(&report.profile)),
    };
    [format!("  {}", named(&report.profile)), output::visible(&result)]
}

fn summary(report: &Report) -> String {
    let count = |name: &str| {
        let of = report.pools.iter().filter(|pool| pool.outcome.name() == name);
        of.count()
    };
    format!(
        "{}: {} equal, {} with differences, {} refused, {} without a config, {} rendered by OSM already",
        output::count(report.pools.len(), "pool"),
        count("equal"),
        count("differs"),
        count("refused"),
        count("notGenerated"),
        count("migrated"),
    )
}

/// A report for programs, as a part of a document.
pub fn value(report: &Report, with_lines: bool, snapshot: &Snapshot) -> Value {
    let difference = |one: &Difference| {
        let (added, removed) = one.changed_lines();
        let mut value =
            json!({"path": one.path, "change": one.kind(), "addedLines": added, "removedLines": removed});
        if with_lines && let Some(fields) = value.as_object_mut() {
            fields.insert("old".to_owned(), json!(one.old));
            fields.insert("new".to_owned(), json!(one.new));
        }
        value
    };
    let pool = |pool: &PoolReport| {
        let refusal = match &pool.outcome {
            Outcome::Refused(refusal) => Some(json!({"reason": refusal.reason, "message": refusal.message})),
            _ => None,
        };
        json!({
            "namespace": pool.namespace,
            "name": pool.name,
            "profile": pool.profile.as_ref().map(profile_json),
            "result": pool.outcome.name(),
            "refusal": refusal,
            "differences": pool.outcome.differences().iter().map(difference).collect::<Vec<Value>>(),
            "warnings": pool.warnings,
        })
    };
    let unused = |one: &ProfileReport| {
        let refusal = one
            .refusal
            .as_ref()
            .map(|refusal| json!({"reason": refusal.reason, "message": refusal.message}));
        json!({"profile": profile_json(&one.profile), "refusal": refusal})
    };
    json!({
        "pools": report.pools.iter().map(pool).collect::<Vec<Value>>(),
        "unusedProfiles": report.unused.iter().map(unused).collect::<Vec<Value>>(),
        "unread": snapshot.unread_json(),
    })
}

fn profile_json(profile: &ProfileName) -> Value {
    json!({
        "kind": profile.kind,
        "namespace": profile.namespace,
        "name": profile.name,
        "version": profile.version,
        "templateEngine": profile.engine,
        "replacedBy": profile.replaced_by,
    })
}
