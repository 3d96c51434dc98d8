//! The modules of a crate: which file each one is in, what it declares and what it refers to.
//!
//! `syn` parses the files. Names are resolved as far as the declarations in the crate go: through `use`, re-exports and
//! globs, but not through types, so that a method call adds no arrow.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, Item, ItemMod, Meta};

/// The name of a module: `[]` for the crate's root, `["plan", "renewal"]` for `crate::plan::renewal`.
pub type Name = Vec<String>;

/// Imports that lead to each other end here.
const MAX_IMPORTS: usize = 32;

/// All modules of one target: a library, a program or a test.
#[derive(Debug, Default)]
pub struct Modules {
    modules: BTreeMap<Name, Module>,
    /// Every file that a `mod` or an `include!` names, tests included.
    files: BTreeSet<PathBuf>,
}

#[derive(Debug, Default)]
struct Module {
    items: BTreeSet<String>,
    imports: BTreeMap<String, Name>,
    globs: Vec<Name>,
    references: BTreeSet<Name>,
}

/// A place in one module that names something of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub from: Name,
    pub to: Name,
    /// As the code has it, such as `crate::plan::Plan`.
    pub path: String,
}

impl Modules {
    /// Reads `root`, a file such as `src/lib.rs`, and every file that its modules name.
    ///
    /// # Errors
    /// A file that can't be read or parsed.
    pub fn read(root: &Path) -> Result<Self> {
        let mut modules = Self::default();
        let folder = root.parent().context("the folder of a crate's root")?;
        modules.read_file(Name::new(), root, folder, false)?;
        Ok(modules)
    }

    /// Every file that belongs to the target.
    pub fn files(&self) -> &BTreeSet<PathBuf> {
        &self.files
    }

    /// Every reference from one module to another, without those in tests.
    pub fn references(&self) -> BTreeSet<Reference> {
        let of_module = |(name, module): (&Name, &Module)| -> Vec<Reference> {
            let reference = |path: &Name| {
                let to = self.resolve(name, path, MAX_IMPORTS)?;
                (to != *name).then(|| Reference {
                    from: name.clone(),
                    to,
                    path: path.join("::"),
                })
            };
            module.references.iter().filter_map(reference).collect()
        };
        self.modules.iter().flat_map(of_module).collect()
    }

    /// `folder` is where the files of the module's children are.
    fn read_file(&mut self, name: Name, file: &Path, folder: &Path, test: bool) -> Result<()> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        self.files.insert(file.to_owned());
        let beside = file.parent().context("the folder of a file")?;
        self.read_items(name, &parsed.items, Place { beside, folder }, test)
    }

    fn read_items(&mut self, name: Name, items: &[Item], place: Place<'_>, test: bool) -> Result<()> {
        let mut module = Module::default();
        for item in items {
            let test = test || is_test(paths::attributes(item));
            if let Item::Mod(child) = item {
                self.read_child(&name, child, place, test)?;
            } else if let Item::Macro(call) = item
                && let Some(included) = paths::included(&call.mac)
            {
                self.files.insert(place.beside.join(included));
            }
            if !test {
                paths::collect(item, &mut module);
            }
        }
        if !test {
            self.modules.insert(name, module);
        }
        Ok(())
    }

    fn read_child(&mut self, parent: &Name, child: &ItemMod, place: Place<'_>, test: bool) -> Result<()> {
        let own = child.ident.to_string();
        let name = [parent.as_slice(), std::slice::from_ref(&own)].concat();
        let inner = place.folder.join(&own);
        if let Some((_, items)) = &child.content {
            return self.read_items(
                name,
                items,
                Place {
                    beside: place.beside,
                    folder: &inner,
                },
                test,
            );
        }
        if let Some(path) = paths::given(&child.attrs) {
            let file = place.beside.join(path);
            // Such a file finds its own children beside it, as `mod.rs` does.
            let folder = file.parent().context("the folder of a module")?.to_owned();
            return self.read_file(name, &file, &folder, test);
        }
        let single = place.folder.join(format!("{own}.rs"));
        let file = if single.is_file() {
            single
        } else {
            inner.join("mod.rs")
        };
        self.read_file(name, &file, &inner, test)
    }

    /// The module that defines what `path` names in `from`; `None` for what is not of this crate.
    fn resolve(&self, from: &Name, path: &[String], imports: usize) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(Name::new(), rest, imports),
            "self" => self.walk(from.clone(), rest, imports),
            "super" => {
                let mut here = from.clone();
                here.pop()?;
                let above = rest.iter().take_while(|segment| *segment == "super").count();
                here.truncate(here.len().checked_sub(above)?);
                self.walk(here, rest.get(above..)?, imports)
            }
            _ => self.find(from, path, imports),
        }
    }

    /// As [`Self::resolve`], from a module that is known; it defines what nothing else does, such as what a macro makes.
    fn walk(&self, here: Name, path: &[String], imports: usize) -> Option<Name> {
        if path.is_empty() {
            return Some(here);
        }
        self.find(&here, path, imports).or(Some(here))
    }

    fn find(&self, here: &Name, path: &[String], imports: usize) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let child = [here.as_slice(), std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return self.walk(child, rest, imports);
        }
        let module = self.modules.get(here)?;
        if module.items.contains(first) {
            return Some(here.clone());
        }
        let left = imports.checked_sub(1)?;
        if let Some(import) = module.imports.get(first) {
            return self.resolve(here, &[import.as_slice(), rest].concat(), left);
        }
        module.globs.iter().find_map(|glob| {
            let of = self.resolve(here, glob, left).filter(|of| of != here)?;
            self.find(&of, path, left)
        })
    }
}

/// Where the files of a module's children are.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The folder of the module's own file, which `#[path]` and `include!` start from.
    beside: &'a Path,
    folder: &'a Path,
}

/// Whether something is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && paths::is_only_for_tests(list.tokens.clone()),
        meta => meta.path().is_ident("test"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files in a folder that is deleted with the first value.
    fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Modules) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let modules = Modules::read(&folder.path().join("lib.rs")).unwrap();
        (folder, modules)
    }

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let (_folder, modules) = read(files);
        let arrow = |reference: Reference| {
            let name = |name: Name| {
                if name.is_empty() {
                    "crate".to_owned()
                } else {
                    name.join("::")
                }
            };
            format!(
                "{} -> {}: {}",
                name(reference.from),
                name(reference.to),
                reference.path
            )
        };
        modules.references().into_iter().map(arrow).collect()
    }

    #[test]
    fn files_are_found_wherever_modules_may_be() {
        let (folder, modules) = read(&[
            (
                "lib.rs",
                "mod a; mod b; mod inline { mod c; } #[cfg(test)] #[path = \"x/tests.rs\"] mod t;",
            ),
            ("a.rs", "mod d; include!(\"generated.rs\");"),
            ("a/d.rs", ""),
            ("b/mod.rs", "mod e;"),
            ("b/e.rs", ""),
            ("inline/c.rs", ""),
            ("x/tests.rs", "mod f;"),
            ("x/f.rs", ""),
            ("nobody.rs", ""),
        ]);
        let names = modules
            .files()
            .iter()
            .map(|file| file.strip_prefix(folder.path()).unwrap());
        let names: Vec<_> = names.map(|name| name.display().to_string()).collect();
        let expected = [
            "a/d.rs",
            "a.rs",
            "b/e.rs",
            "b/mod.rs",
            "generated.rs",
            "inline/c.rs",
            "lib.rs",
            "x/f.rs",
            "x/tests.rs",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn imports_and_inline_paths_are_references_and_tests_have_none() {
        let found = arrows(&[
            ("lib.rs", "mod a; mod b; pub struct Error; fn run() { a::go() }"),
            (
                "a.rs",
                "use std::fmt; use crate::{Error, b::{self, Size as S}};
                 #[serde(with = \"crate::b::text\")] struct A(super::Error);
                 fn go() -> fmt::Result { assert!(crate::b::check()); b::more(); }
                 #[cfg(test)] mod tests { use crate::b::Hidden; }
                 #[test] fn t() { crate::b::hidden_too() }",
            ),
            (
                "b.rs",
                "pub struct Size; pub fn check() {} pub fn more() {} mod text {}",
            ),
        ]);
        let expected = [
            "crate -> a: a::go",
            "a -> crate: crate::Error",
            "a -> crate: super::Error",
            "a -> b: b::more",
            "a -> b: crate::b",
            "a -> b: crate::b::Size",
            "a -> b: crate::b::check",
            "a -> b::text: crate::b::text",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn re_exports_lead_to_where_something_is_defined() {
        let found = arrows(&[
            (
                "lib.rs",
                "mod a; mod b; mod user; pub use a::A; pub use b::*; use crate::round as round;",
            ),
            ("a.rs", "pub struct A;"),
            ("b/mod.rs", "mod inner; pub use self::inner::{B, C as D};"),
            ("b/inner.rs", "pub struct B; pub struct C;"),
            (
                "user.rs",
                "use crate::{A, B}; use crate::D; fn f() { super::round(); crate::made_by_a_macro() }",
            ),
        ]);
        let of_user: Vec<_> = found.iter().filter(|arrow| arrow.starts_with("user")).collect();
        let expected = [
            "user -> crate: crate::made_by_a_macro",
            "user -> crate: super::round",
            "user -> a: crate::A",
            "user -> b::inner: crate::B",
            "user -> b::inner: crate::D",
        ];
        assert_eq!(of_user, expected);
    }
}
