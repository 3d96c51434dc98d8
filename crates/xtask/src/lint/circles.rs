//! Circles of modules.
//!
//! In every folder of a crate its modules can be put in an order in which each uses only those before it. A module counts with
//! everything below it, so a path from `kubelet::schema` to `profile` is an arrow from `kubelet` to `profile`. A module and
//! what is below it may use each other. Tests don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::modules::{Modules, Name, Reference};

/// Modules of one folder of which each uses, directly or through others, every other.
#[derive(Debug, PartialEq, Eq)]
pub struct Circle {
    /// The module whose children they are.
    pub parent: Name,
    pub modules: Vec<String>,
    /// For each arrow between two of them, one reference that makes it.
    pub arrows: BTreeMap<(String, String), Reference>,
}

type Arrows = BTreeMap<(String, String), Reference>;

/// All circles of a target.
pub fn of(modules: &Modules) -> Vec<Circle> {
    let mut folders: BTreeMap<Name, Arrows> = BTreeMap::new();
    for reference in modules.references() {
        let (from, to) = (&reference.from, &reference.to);
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        // Where one is below the other, it is a module and its child.
        if let (Some(a), Some(b), Some(parent)) = (from.get(common), to.get(common), from.get(..common)) {
            let arrows = folders.entry(parent.to_vec()).or_default();
            let arrow = (a.clone(), b.clone());
            // The longest path says the most.
            if arrows
                .get(&arrow)
                .is_none_or(|known| known.path.len() < reference.path.len())
            {
                arrows.insert(arrow, reference);
            }
        }
    }
    folders
        .into_iter()
        .flat_map(|(parent, arrows)| circles(&parent, &arrows))
        .collect()
}

fn circles(parent: &Name, arrows: &Arrows) -> Vec<Circle> {
    let modules: BTreeSet<&str> = arrows.keys().map(|(from, _)| from.as_str()).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> = modules
        .into_iter()
        .map(|module| (module, reachable(module, arrows)))
        .collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|reached| reached.contains(to));
    let mut circles: Vec<Circle> = Vec::new();
    for &module in reached.keys().filter(|module| reaches(module, module)) {
        if circles
            .iter()
            .any(|circle| circle.modules.iter().any(|known| known == module))
        {
            continue;
        }
        let same = |other: &&&str| reaches(module, other) && reaches(other, module);
        let members: Vec<String> = reached
            .keys()
            .filter(same)
            .map(|&module| module.to_owned())
            .collect();
        let within = |((from, to), _): &(&(String, String), &Reference)| {
            members.contains(from) && members.contains(to)
        };
        let arrows = arrows
            .iter()
            .filter(within)
            .map(|(arrow, reference)| (arrow.clone(), reference.clone()));
        circles.push(Circle {
            parent: parent.clone(),
            arrows: arrows.collect(),
            modules: members,
        });
    }
    circles
}

fn reachable<'a>(module: &'a str, arrows: &'a Arrows) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![module];
    while let Some(here) = waiting.pop() {
        for (_, to) in arrows.keys().filter(|(from, _)| from == here) {
            if reached.insert(to.as_str()) {
                waiting.push(to);
            }
        }
    }
    reached
}

/// A Markdown table of circles, by crate.
pub fn table(circles: &[(String, Circle)]) -> String {
    let mut table = String::from("| crate | folder | modules | arrows |\n|---|---|---|---|\n");
    for (
        target,
        Circle {
            parent,
            modules,
            arrows,
        },
    ) in circles
    {
        let folder = if parent.is_empty() {
            "`crate`".to_owned()
        } else {
            format!("`{}`", parent.join("::"))
        };
        let _ = writeln!(
            table,
            "| {target} | {folder} | {}: {} | {} |",
            modules.len(),
            modules.join(", "),
            arrows.len()
        );
    }
    table
}

/// Every arrow of a circle, a line each, with a path that makes it.
pub fn arrows(circle: &Circle) -> String {
    let name = |name: &Name| {
        if name.is_empty() {
            "crate".to_owned()
        } else {
            name.join("::")
        }
    };
    let mut text = String::new();
    for ((from, to), reference) in &circle.arrows {
        let _ = writeln!(
            text,
            "  {from} → {to}: {} uses {}",
            name(&reference.from),
            reference.path
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = of(&Modules::read(&folder.path().join("lib.rs")).unwrap());
        let show = |circle: &Circle| format!("{}: {}", circle.parent.join("::"), circle.modules.join(" "));
        found.iter().map(show).collect()
    }

    #[test]
    fn a_circle_has_all_modules_that_reach_each_other() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c; use crate::d;"),
            ("c.rs", "use crate::a;"),
            ("d.rs", "use crate::e;"),
            ("e.rs", ""),
        ]);
        assert_eq!(found, [": a b c"]);
    }

    #[test]
    fn a_module_counts_with_what_is_below_it() {
        let found = circles(&[
            ("lib.rs", "mod kubelet; mod profile;"),
            ("kubelet/mod.rs", "mod schema; mod fields; pub struct Kubelet;"),
            (
                "kubelet/schema.rs",
                "use crate::profile::MINORS; use super::fields::F;",
            ),
            ("kubelet/fields.rs", "use super::schema::S; pub struct F;"),
            ("profile.rs", "use crate::kubelet::Kubelet;"),
        ]);
        assert_eq!(found, [": kubelet profile", "kubelet: fields schema"]);
    }

    #[test]
    fn parent_and_child_may_use_each_other() {
        let found = circles(&[
            ("lib.rs", "mod a; pub struct Error; fn run() { a::run() }"),
            (
                "a.rs",
                "mod b; use crate::Error; fn run() { b::run() } pub fn help() {}",
            ),
            ("a/b.rs", "fn run() { super::help() }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
