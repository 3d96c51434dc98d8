//! The paths that an item names.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Item, ItemUse, Lit, LitStr, Macro, Meta, MetaList, UseTree};

use super::{Module, Name, is_test};

/// Adds what `item` declares, imports and refers to.
pub fn collect(item: &Item, module: &mut Module) {
    match item {
        Item::Const(item) => declare(module, &item.ident),
        Item::Enum(item) => declare(module, &item.ident),
        Item::Fn(item) => declare(module, &item.sig.ident),
        Item::Macro(item) => item.ident.iter().for_each(|name| declare(module, name)),
        Item::Static(item) => declare(module, &item.ident),
        Item::Struct(item) => declare(module, &item.ident),
        Item::Trait(item) => declare(module, &item.ident),
        Item::Type(item) => declare(module, &item.ident),
        Item::Union(item) => declare(module, &item.ident),
        // A child's items are its own.
        Item::Mod(_) => return,
        _ => {}
    }
    Collector { module }.visit_item(item);
}

fn declare(module: &mut Module, name: &syn::Ident) {
    module.items.insert(name.to_string());
}

/// The attributes of an item, where it may have some.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The file that `#[path = "…"]` names.
pub fn given(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("path") => match &meta.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The file that `include!("…")` names.
pub fn included(call: &Macro) -> Option<String> {
    let file = call
        .path
        .is_ident("include")
        .then(|| call.parse_body::<LitStr>().ok())
        .flatten()?;
    Some(file.value())
}

/// Whether a `cfg` holds only where tests are compiled: `test`, also within `all(…)`.
pub fn is_only_for_tests(cfg: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = cfg.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(group)] if name == "all" => {
            let mut inner = group.stream().into_iter();
            inner.any(|token| matches!(token, TokenTree::Ident(name) if name == "test"))
        }
        _ => false,
    }
}

struct Collector<'a> {
    module: &'a mut Module,
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() && !is_test(&item.attrs) {
            self.import(&item.tree, Name::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.refer_to(path);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.scan(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_meta_list(&mut self, list: &'ast MetaList) {
        // A path in a string: `#[serde(with = "crate::text")]`.
        for token in list.tokens.clone() {
            if let TokenTree::Literal(literal) = token
                && let Ok(Lit::Str(text)) = syn::parse_str(&literal.to_string())
                && let Ok(path) = text.parse::<syn::Path>()
            {
                self.refer_to(&path);
            }
        }
        self.scan(list.tokens.clone());
        visit::visit_meta_list(self, list);
    }
}

impl Collector<'_> {
    fn refer_to(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            self.refer(
                path.segments
                    .iter()
                    .map(|segment| segment.ident.to_string())
                    .collect(),
            );
        }
    }

    fn refer(&mut self, path: Name) {
        if !path.is_empty() {
            self.module.references.insert(path);
        }
    }

    fn import(&mut self, tree: &UseTree, before: Name) {
        let with = |name: &syn::Ident| {
            // `use a::{self}` imports `a`.
            if name == "self" && !before.is_empty() {
                return before.clone();
            }
            [before.as_slice(), &[name.to_string()]].concat()
        };
        match tree {
            UseTree::Path(path) => self.import(&path.tree, with(&path.ident)),
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.import(tree, before.clone())),
            UseTree::Glob(_) => {
                self.refer(before.clone());
                self.module.globs.push(before);
            }
            UseTree::Name(name) => self.import_as(with(&name.ident), None),
            UseTree::Rename(name) => self.import_as(with(&name.ident), Some(name.rename.to_string())),
        }
    }

    fn import_as(&mut self, path: Name, name: Option<String>) {
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            self.module.imports.insert(name, path.clone());
        }
        self.refer(path);
    }

    /// Paths among tokens that nothing parses. A single word may be anything, such as a variable.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path = Name::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.refer_to_path(&mut path);
                    }
                    // What follows a leading `::` is of another crate.
                    if colons != 2 || !path.is_empty() {
                        path.push(name.to_string());
                    }
                    colons = 0;
                }
                other => {
                    self.refer_to_path(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.refer_to_path(&mut path);
    }

    fn refer_to_path(&mut self, path: &mut Name) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.refer(path);
        }
    }
}
