//! Puts one stage of a profile on the same stage of its base.

use std::collections::BTreeSet;

use osm_api::profile::{
    Commands, ContainerRuntime, ContainerRuntimeName, ProfileConfig, ProfileFile, ProfileUnit,
};
use serde_json::Value;

use super::{Problem, modules, similar};
use crate::Stage;

/// A stage that is being put together, and what messages say about it.
struct Merge<'a> {
    merged: ProfileConfig,
    base: &'a str,
    /// Name of the stage's field.
    stage: &'static str,
}

/// `extension` on `merged`, the stage of the profile `base`.
pub(super) fn merge(
    merged: ProfileConfig,
    base: &str,
    stage: Stage,
    extension: &ProfileConfig,
) -> Result<ProfileConfig, Problem> {
    let stage = stage.field();
    let mut merge = Merge { merged, base, stage };
    let templates = merge.template_names();
    let listed: Vec<&str> = extension.files.iter().map(|file| file.path.as_str()).collect();
    for (i, file) in extension.files.iter().enumerate() {
        let place = format!("{stage}.files[{i}] ({})", file.path);
        check_listed_once(&place, &listed, i)?;
        merge.file(&place, file, false)?;
    }
    let runtimes = extension.supported_container_runtimes.iter();
    for runtime in runtimes.filter(|runtime| runtime.name == ContainerRuntimeName::Containerd) {
        merge.runtime(runtime, &templates)?;
    }
    let listed: Vec<&str> = extension.units.iter().map(|unit| unit.name.as_str()).collect();
    for (i, unit) in extension.units.iter().enumerate() {
        let place = format!("{stage}.units[{i}] ({})", unit.name);
        check_listed_once(&place, &listed, i)?;
        merge.unit(&place, unit)?;
    }
    merge.templates(extension, &templates)?;
    merge.modules(extension)?;
    merge.sysctls(extension)?;
    merge.lists(extension);
    Ok(merge.merged)
}

/// An extension that lists an item twice would seem to collide with its base.
fn check_listed_once(place: &str, listed: &[&str], index: usize) -> Result<(), Problem> {
    let item = listed.get(index);
    match listed.iter().position(|other| Some(other) == item) {
        Some(first) if first < index => Err(Problem::new(place, "is listed more than once; list it once")),
        _ => Ok(()),
    }
}

impl Merge<'_> {
    fn file(&mut self, place: &str, file: &ProfileFile, of_runtime: bool) -> Result<(), Problem> {
        let marks = Marks::of(place, "file", file.replace, file.remove)?;
        if file.remove && file.content.inline.is_some() {
            let problem = "a removed file has no content; remove the content, or set replace: true instead";
            return Err(Problem::new(place, problem));
        }
        let own = &mut self.merged.files;
        let runtimes = self.merged.supported_container_runtimes.iter_mut();
        let runtimes = runtimes.filter(|runtime| runtime.name == ContainerRuntimeName::Containerd);
        let lists = std::iter::once(own).chain(runtimes.map(|runtime| &mut runtime.files));
        let is = |known: &ProfileFile| known.path == file.path;
        let mut found = lists.filter_map(|list| Some((list.iter().position(is)?, list)));
        let file = ProfileFile {
            replace: false,
            remove: false,
            ..file.clone()
        };
        match (found.next(), marks) {
            (Some((at, list)), Marks::Remove) => drop(list.remove(at)),
            (Some((at, list)), Marks::Replace) => list.splice(at..=at, [file]).for_each(drop),
            (Some(_), Marks::Add) => return Err(self.collision(place, "file", "replace: true")),
            (None, Marks::Add) => match self.containerd() {
                Some(runtime) if of_runtime => runtime.files.push(file),
                _ => self.merged.files.push(file),
            },
            (None, Marks::Replace | Marks::Remove) => {
                let runtime = self
                    .containerd()
                    .map(|runtime| runtime.files.clone())
                    .unwrap_or_default();
                let known = self
                    .merged
                    .files
                    .iter()
                    .chain(&runtime)
                    .map(|known| known.path.as_str());
                return Err(self.missing(place, "file", &file.path, known));
            }
        }
        Ok(())
    }

    fn containerd(&mut self) -> Option<&mut ContainerRuntime> {
        let mut runtimes = self.merged.supported_container_runtimes.iter_mut();
        runtimes.find(|runtime| runtime.name == ContainerRuntimeName::Containerd)
    }

    fn runtime(&mut self, runtime: &ContainerRuntime, of_base: &BTreeSet<String>) -> Result<(), Problem> {
        if self.containerd().is_none() {
            self.merged.supported_container_runtimes.push(ContainerRuntime {
                name: ContainerRuntimeName::Containerd,
                files: Vec::new(),
                templates: Default::default(),
            });
        }
        let place = format!("{}.supportedContainerRuntimes[containerd]", self.stage);
        for (i, file) in runtime.files.iter().enumerate() {
            self.file(&format!("{place}.files[{i}] ({})", file.path), file, true)?;
        }
        for (name, text) in &runtime.templates {
            if of_base.contains(name) {
                return Err(self.collision(
                    &format!("{place}.templates.{name}"),
                    "template",
                    "it under replaceTemplates",
                ));
            }
            if let Some(merged) = self.containerd() {
                merged.templates.insert(name.clone(), text.clone());
            }
        }
        Ok(())
    }

    fn unit(&mut self, place: &str, unit: &ProfileUnit) -> Result<(), Problem> {
        let marks = Marks::of(place, "unit", unit.replace, unit.remove)?;
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
            return Err(Problem::new(place, problem));
        }
        let adds_drop_ins_only = !unit.drop_ins.is_empty()
            && unit.content.is_none()
            && unit.enable.is_none()
            && unit.mask.is_none();
        let at = self.merged.units.iter().position(|known| known.name == unit.name);
        match (at, marks) {
            (Some(at), Marks::Remove) => drop(self.merged.units.remove(at)),
            (Some(at), Marks::Replace) => self.merged.units.splice(at..=at, [own]).for_each(drop),
            (Some(at), Marks::Add) if adds_drop_ins_only => self.drop_ins(place, at, unit)?,
            (Some(_), Marks::Add) => return Err(self.collision(place, "unit", "replace: true")),
            (None, Marks::Add) => self.merged.units.push(own),
            (None, Marks::Replace | Marks::Remove) => {
                let known = self.merged.units.iter().map(|known| known.name.as_str());
                return Err(self.missing(place, "unit", &unit.name, known));
            }
        }
        Ok(())
    }

    /// Adds the drop-ins of a unit to the unit of the base, which has the index `at`.
    fn drop_ins(&mut self, place: &str, at: usize, unit: &ProfileUnit) -> Result<(), Problem> {
        for drop_in in &unit.drop_ins {
            let Some(merged) = self.merged.units.get_mut(at) else {
                continue;
            };
            if merged.drop_ins.iter().any(|known| known.name == drop_in.name) {
                let place = format!("{place}.dropIns ({})", drop_in.name);
                return Err(Problem::new(
                    place,
                    format!(
                        "{} has this drop-in as well; give it another name, or set replace: true to replace the whole unit",
                        self.base
                    ),
                ));
            }
            merged.drop_ins.push(drop_in.clone());
        }
        Ok(())
    }

    /// Names of the templates so far.
    fn template_names(&self) -> BTreeSet<String> {
        let runtimes = self.merged.supported_container_runtimes.iter();
        let of_runtimes = runtimes.flat_map(|runtime| runtime.templates.keys());
        self.merged.templates.keys().chain(of_runtimes).cloned().collect()
    }

    fn templates(&mut self, extension: &ProfileConfig, of_base: &BTreeSet<String>) -> Result<(), Problem> {
        let (stage, own) = (self.stage, extension.templates.keys());
        let listed = own
            .chain(extension.replace_templates.keys())
            .chain(&extension.remove_templates);
        let mut seen = BTreeSet::new();
        for name in listed {
            if !seen.insert(name) {
                return Err(Problem::new(
                    format!("{stage}.templates"),
                    format!(
                        "{name} is listed more than once in templates, replaceTemplates and removeTemplates; list it once"
                    ),
                ));
            }
        }
        let known = || of_base.iter().map(String::as_str);
        for (name, text) in &extension.replace_templates {
            if !of_base.contains(name) {
                return Err(self.missing(
                    &format!("{stage}.replaceTemplates.{name}"),
                    "template",
                    name,
                    known(),
                ));
            }
            // A template of the stage takes precedence over one of the container runtime.
            self.merged.templates.insert(name.clone(), text.clone());
        }
        for (i, name) in extension.remove_templates.iter().enumerate() {
            if !of_base.contains(name) {
                return Err(self.missing(
                    &format!("{stage}.removeTemplates[{i}]"),
                    "template",
                    name,
                    known(),
                ));
            }
            self.merged.templates.remove(name);
            for runtime in &mut self.merged.supported_container_runtimes {
                runtime.templates.remove(name);
            }
        }
        for (name, text) in &extension.templates {
            if of_base.contains(name) {
                return Err(self.collision(
                    &format!("{stage}.templates.{name}"),
                    "template",
                    "it under replaceTemplates",
                ));
            }
            self.merged.templates.insert(name.clone(), text.clone());
        }
        Ok(())
    }

    fn modules(&mut self, extension: &ProfileConfig) -> Result<(), Problem> {
        let stage = self.stage;
        for (i, name) in extension.remove_modules.iter().enumerate() {
            let base = self.merged.modules.as_mut().and_then(Value::as_object_mut);
            if base.and_then(|modules| modules.remove(name)).is_none() {
                let base = self.merged.modules.as_ref().and_then(Value::as_object);
                let known = base
                    .into_iter()
                    .flat_map(|modules| modules.keys())
                    .map(String::as_str);
                return Err(self.missing(&format!("{stage}.removeModules[{i}]"), "module", name, known));
            }
        }
        let Some(own) = &extension.modules else {
            return Ok(());
        };
        match &mut self.merged.modules {
            Some(base) => modules::merge(base, own, &format!("{stage}.modules"), None),
            none => {
                *none = Some(own.clone());
                Ok(())
            }
        }
    }

    fn sysctls(&mut self, extension: &ProfileConfig) -> Result<(), Problem> {
        let stage = self.stage;
        for (i, key) in extension.remove_sysctls.iter().enumerate() {
            if self.merged.sysctls.remove(key).is_none() {
                let known = self.merged.sysctls.keys().map(String::as_str);
                return Err(self.missing(
                    &format!("{stage}.removeSysctls[{i}]"),
                    "entry in sysctls",
                    key,
                    known,
                ));
            }
        }
        for (key, value) in &extension.sysctls {
            match self.merged.sysctls.get(key) {
                Some(known) if known != value => {
                    let place = format!("{stage}.sysctls.{key}");
                    return Err(Problem::new(
                        place,
                        format!(
                            "{} sets another value; to replace it, list {key} in removeSysctls",
                            self.base
                        ),
                    ));
                }
                _ => self.merged.sysctls.insert(key.clone(), value.clone()),
            };
        }
        Ok(())
    }

    /// What is a list in both, and can't collide.
    fn lists(&mut self, extension: &ProfileConfig) {
        let add = |list: &mut Vec<String>, own: &[String]| {
            let new: Vec<String> = own.iter().filter(|name| !list.contains(name)).cloned().collect();
            list.extend(new);
        };
        add(&mut self.merged.packages, &extension.packages);
        add(&mut self.merged.kernel_modules, &extension.kernel_modules);
        if let Some(own) = &extension.commands {
            let base = self.merged.commands.take().unwrap_or_default();
            // Around everything that the base does, which its own commands belong to.
            self.merged.commands = Some(Commands {
                before: [own.before.clone(), base.before].concat(),
                after: [base.after, own.after.clone()].concat(),
            });
        }
    }

    fn collision(&self, place: &str, what: &str, instead: &str) -> Problem {
        let problem = format!(
            "{} has this {what} as well; to replace it, set {instead}",
            self.base
        );
        Problem::new(place, problem)
    }

    fn missing<'n>(
        &self,
        place: &str,
        what: &str,
        name: &str,
        known: impl Iterator<Item = &'n str>,
    ) -> Problem {
        let problem = format!("{} has no such {what}; {}", self.base, similar::hint(name, known));
        Problem::new(place, problem)
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
    fn of(place: &str, what: &str, replace: bool, remove: bool) -> Result<Self, Problem> {
        match (replace, remove) {
            (false, false) => Ok(Self::Add),
            (true, false) => Ok(Self::Replace),
            (false, true) => Ok(Self::Remove),
            (true, true) => Err(Problem::new(
                place,
                format!("this {what} has both replace and remove; set one of them"),
            )),
        }
    }
}
