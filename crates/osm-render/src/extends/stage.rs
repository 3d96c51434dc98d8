//! Puts one stage of a profile on the same stage of its base.

use std::collections::BTreeSet;

use osm_api::profile::{Commands, ProfileConfig, ProfileFile, ProfileUnit};
use osm_user_data::stage::Stage;
use serde_json::Value;

use super::modules;
use crate::error::{ProfileError, extends};
use crate::template_walk;

/// `extension` on `merged`, the stage of the profile `base`. Files and templates of a container runtime
/// become those of the stage.
pub(super) fn merge(
    mut merged: ProfileConfig,
    base: &str,
    stage: Stage,
    extension: &ProfileConfig,
) -> Result<ProfileConfig, ProfileError> {
    let field = stage.field();
    flatten(&mut merged);
    let mut listed = BTreeSet::new();
    for (place, file) in template_walk::files(field, extension) {
        listed_once(listed.insert(&file.path), &place)?;
        merge_file(&mut merged.files, base, &place, file)?;
    }
    let mut listed = BTreeSet::new();
    for (i, unit) in extension.units.iter().enumerate() {
        let place = format!("{field}.units[{i}] ({})", unit.name);
        listed_once(listed.insert(&unit.name), &place)?;
        merge_unit(&mut merged.units, base, &place, unit)?;
    }
    merge_templates(&mut merged, base, field, extension)?;
    merge_modules(&mut merged, base, field, extension)?;
    merge_sysctls(&mut merged, base, field, extension)?;
    merge_lists(&mut merged, extension);
    Ok(merged)
}

/// Makes files and templates of the container runtime those of the stage, whose own templates take
/// precedence.
fn flatten(config: &mut ProfileConfig) {
    let files: Vec<ProfileFile> = template_walk::files("", config)
        .map(|(_, file)| file.clone())
        .collect();
    let templates = template_walk::templates("", config).into_iter();
    config.templates = templates
        .map(|(_, name, text)| (name.to_owned(), text.to_owned()))
        .collect();
    config.files = files;
    config.supported_container_runtimes.clear();
}

/// An extension that lists an item twice would seem to collide with its base.
fn listed_once(is_first: bool, place: &str) -> Result<(), ProfileError> {
    if is_first {
        Ok(())
    } else {
        Err(extends(place, "is listed more than once; list it once"))
    }
}

fn merge_file(
    files: &mut Vec<ProfileFile>,
    base: &str,
    place: &str,
    file: &ProfileFile,
) -> Result<(), ProfileError> {
    let marks = Marks::of(place, file.replace, file.remove)?;
    if file.remove && file.content.inline.is_some() {
        let problem = "a removed file has no content; remove the content, or set replace: true instead";
        return Err(extends(place, problem));
    }
    let own = ProfileFile {
        replace: false,
        remove: false,
        ..file.clone()
    };
    let at = files.iter().position(|known| known.path == file.path);
    put(files, at, marks, own, "file").map_err(|problem| extends(place, format!("{base} {problem}")))
}

fn merge_unit(
    units: &mut Vec<ProfileUnit>,
    base: &str,
    place: &str,
    unit: &ProfileUnit,
) -> Result<(), ProfileError> {
    let marks = Marks::of(place, unit.replace, unit.remove)?;
    let own = ProfileUnit {
        replace: false,
        remove: false,
        ..unit.clone()
    };
    let has_name_only = ProfileUnit {
        name: unit.name.clone(),
        ..ProfileUnit::default()
    };
    if unit.remove && own != has_name_only {
        let problem = "a removed unit has only its name; remove the rest, or set replace: true instead";
        return Err(extends(place, problem));
    }
    let adds_drop_ins_only = !unit.drop_ins.is_empty()
        && own
            == ProfileUnit {
                drop_ins: unit.drop_ins.clone(),
                ..has_name_only
            };
    let at = units.iter().position(|known| known.name == unit.name);
    let known = at.and_then(|at| units.get_mut(at));
    if let (Some(known), Marks::Add, true) = (known, marks, adds_drop_ins_only) {
        for drop_in in &unit.drop_ins {
            if known.drop_ins.iter().any(|other| other.name == drop_in.name) {
                let problem = format!(
                    "{base} has this drop-in as well; give it another name, or set replace: true to replace the whole unit"
                );
                return Err(extends(format!("{place}.dropIns ({})", drop_in.name), problem));
            }
            known.drop_ins.push(drop_in.clone());
        }
        return Ok(());
    }
    put(units, at, marks, own, "unit").map_err(|problem| extends(place, format!("{base} {problem}")))
}

/// Adds, replaces or removes an item. `at` is the place of the item of the base, if that has one.
fn put<T>(list: &mut Vec<T>, at: Option<usize>, marks: Marks, item: T, what: &str) -> Result<(), String> {
    match (at, marks) {
        (Some(at), Marks::Remove) => drop(list.remove(at)),
        (Some(at), Marks::Replace) => list.splice(at..=at, [item]).for_each(drop),
        (None, Marks::Add) => list.push(item),
        (Some(_), Marks::Add) => {
            return Err(format!(
                "has this {what} as well; to replace it, set replace: true"
            ));
        }
        (None, Marks::Replace | Marks::Remove) => return Err(has_no(what)),
    }
    Ok(())
}

fn has_no(what: &str) -> String {
    format!("has no such {what}; correct the name, or remove it")
}

fn merge_templates(
    merged: &mut ProfileConfig,
    base: &str,
    stage: &'static str,
    extension: &ProfileConfig,
) -> Result<(), ProfileError> {
    let own = template_walk::templates(stage, extension);
    let names = own.iter().map(|(_, name, _)| *name);
    let replaced = extension.replace_templates.keys().map(String::as_str);
    let removed = extension.remove_templates.iter().map(String::as_str);
    let mut seen = BTreeSet::new();
    for name in names.chain(replaced).chain(removed) {
        if !seen.insert(name) {
            let problem = format!(
                "{name} is listed more than once in templates, replaceTemplates and removeTemplates; list it once"
            );
            return Err(extends(format!("{stage}.templates"), problem));
        }
    }
    let templates = &mut merged.templates;
    for (place, name, text) in own {
        if templates.contains_key(name) {
            let problem =
                format!("{base} has this template as well; to replace it, set it under replaceTemplates");
            return Err(extends(place, problem));
        }
        templates.insert(name.to_owned(), text.to_owned());
    }
    let missing = |place| extends(place, format!("{base} {}", has_no("template")));
    for (name, text) in &extension.replace_templates {
        let known = templates.get_mut(name);
        known
            .ok_or_else(|| missing(format!("{stage}.replaceTemplates.{name}")))?
            .clone_from(text);
    }
    let place = format!("{stage}.removeTemplates");
    remove(&extension.remove_templates, &place, base, "template", |name| {
        templates.remove(name).is_some()
    })
}

/// Removes what an extension lists by name, which the base must have.
fn remove(
    names: &[String],
    place: &str,
    base: &str,
    what: &str,
    mut is_removed: impl FnMut(&str) -> bool,
) -> Result<(), ProfileError> {
    for (i, name) in names.iter().enumerate() {
        if !is_removed(name) {
            let place = format!("{place}[{i}] ({name})");
            return Err(extends(place, format!("{base} {}", has_no(what))));
        }
    }
    Ok(())
}

fn merge_modules(
    merged: &mut ProfileConfig,
    base: &str,
    stage: &str,
    extension: &ProfileConfig,
) -> Result<(), ProfileError> {
    let place = format!("{stage}.removeModules");
    remove(&extension.remove_modules, &place, base, "module", |name| {
        let known = merged.modules.as_mut().and_then(Value::as_object_mut);
        known.and_then(|modules| modules.remove(name)).is_some()
    })?;
    match (&mut merged.modules, &extension.modules) {
        (_, None) => Ok(()),
        (Some(known), Some(own)) => modules::merge(known, own, &format!("{stage}.modules"), None),
        (none, own) => {
            none.clone_from(own);
            Ok(())
        }
    }
}

fn merge_sysctls(
    merged: &mut ProfileConfig,
    base: &str,
    stage: &str,
    extension: &ProfileConfig,
) -> Result<(), ProfileError> {
    let place = format!("{stage}.removeSysctls");
    let what = "entry in sysctls";
    remove(&extension.remove_sysctls, &place, base, what, |key| {
        merged.sysctls.remove(key).is_some()
    })?;
    for (key, value) in &extension.sysctls {
        if merged.sysctls.get(key).is_some_and(|known| known != value) {
            let problem = format!("{base} sets another value; to replace it, list {key} in removeSysctls");
            return Err(extends(format!("{stage}.sysctls.{key}"), problem));
        }
        merged.sysctls.insert(key.clone(), value.clone());
    }
    Ok(())
}

/// What is a list in both, and can't collide.
fn merge_lists(merged: &mut ProfileConfig, extension: &ProfileConfig) {
    let add = |list: &mut Vec<String>, own: &[String]| {
        let new: Vec<String> = own.iter().filter(|name| !list.contains(name)).cloned().collect();
        list.extend(new);
    };
    add(&mut merged.packages, &extension.packages);
    add(&mut merged.kernel_modules, &extension.kernel_modules);
    if let Some(own) = &extension.commands {
        let base = merged.commands.take().unwrap_or_default();
        // Around everything that the base does, which its own commands belong to.
        merged.commands = Some(Commands {
            before: [own.before.clone(), base.before].concat(),
            after: [base.after, own.after.clone()].concat(),
        });
    }
}

/// What a profile wants with an item of its base.
#[derive(Clone, Copy)]
enum Marks {
    Add,
    Replace,
    Remove,
}

impl Marks {
    fn of(place: &str, replace: bool, remove: bool) -> Result<Self, ProfileError> {
        match (replace, remove) {
            (false, false) => Ok(Self::Add),
            (true, false) => Ok(Self::Replace),
            (false, true) => Ok(Self::Remove),
            (true, true) => Err(extends(place, "has both replace and remove; set one of them")),
        }
    }
}
