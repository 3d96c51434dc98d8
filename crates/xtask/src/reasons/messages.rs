//! Collects the messages of each reason from the source code.
//!
//! A message belongs to a reason in one of three ways:
//! - a variant of an error enum has it in `#[error("…")]`, and the enum's `fn reason` maps the variant to the reason;
//! - it stands beside `Reason::X` in a call, a struct or a tuple, directly or by way of a variable or a function of the crate;
//! - it is a part that code puts into such a variant, directly or by way of a function of the crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use osm_api::Reason;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Expr, FnArg, ItemConst, ItemEnum, ItemFn, ItemImpl, ItemMod, Local, Pat, Signature,
};

/// The crates whose messages users see.
const CRATES: [&str; 8] = [
    "osm-api",
    "osm-render",
    "osm-runtime",
    "osm-validate",
    "osp-controller",
    "osc-controller",
    "secret-syncer",
    "csr-approver",
];

/// Its details only name the object of a request.
const REQUEST_ERROR: &str = "RequestError";

/// How many functions may lie between a text and the variant that takes it.
const MAX_DEPTH: usize = 3;

/// Whether a text is a message, or what code puts into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Whole,
    Detail,
}

/// What the code says.
#[derive(Default)]
pub struct Messages {
    texts: BTreeMap<Reason, BTreeSet<(Part, String)>>,
    /// Every text of the code.
    literals: BTreeSet<String>,
    /// Reasons that product code names.
    pub used: BTreeSet<Reason>,
    /// Fields of the settings, and their rules.
    pub settings: BTreeSet<(String, String)>,
}

impl Messages {
    /// Parses the product crates.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn collect() -> Result<Self> {
        let mut messages = Self::default();
        let mut crates = Vec::new();
        for name in CRATES {
            let mut files = Vec::new();
            parse(&crate::root().join("crates").join(name).join("src"), &mut files)?;
            crates.push(files);
        }
        // Every crate may use the errors and the constants of the others.
        let (mut errors, mut all) = (Errors::default(), Names::default());
        for file in crates.iter().flatten() {
            Literals(&mut messages.literals).visit_file(file);
            errors.visit_file(file);
            all.visit_file(file);
        }
        errors.add_to(&all, &mut messages);
        for files in &crates {
            let mut names = Names {
                texts: all.texts.clone(),
                ..Names::default()
            };
            files.iter().for_each(|file| names.visit_file(file));
            let mut sinks = Sinks::default();
            for _ in 0..MAX_DEPTH {
                for file in files {
                    Walk::new(&errors, &names, &mut sinks, &mut messages).visit_file(file);
                }
            }
        }
        Ok(messages)
    }

    /// The messages of a reason, or their details, without those that another one of them contains.
    pub fn of(&self, reason: Reason, part: Part) -> Vec<&str> {
        let stated = reason.row().messages.iter().map(|text| (Part::Whole, *text));
        let collected = self
            .texts
            .get(&reason)
            .into_iter()
            .flatten()
            .map(|(part, text)| (*part, text.as_str()));
        let all: BTreeSet<(Part, &str)> = stated.chain(collected).collect();
        let is_contained = |text: &str| {
            all.iter()
                .any(|(_, other)| *other != text && contains(other, text))
        };
        let is_stated_too = |text: &str| part == Part::Detail && all.contains(&(Part::Whole, text));
        let texts = all
            .iter()
            .filter(|(of, text)| *of == part && !is_contained(text) && !is_stated_too(text));
        texts.map(|(_, text)| *text).collect()
    }

    /// The parts of the rows' messages that no text of the code contains.
    pub fn strange(&self) -> Vec<(Reason, &'static str)> {
        let mut strange = Vec::new();
        for reason in Reason::all() {
            let parts = reason
                .row()
                .messages
                .iter()
                .flat_map(|text| text.split(['{', '}']).step_by(2));
            for part in parts.flat_map(|part| part.split("; ")).map(str::trim) {
                if is_message(part) && !self.literals.iter().any(|literal| literal.contains(part)) {
                    strange.push((reason, part));
                }
            }
        }
        strange
    }

    fn add(&mut self, reason: Reason, part: Part, text: &str) {
        if is_message(text) {
            self.texts
                .entry(reason)
                .or_default()
                .insert((part, text.to_owned()));
        }
    }
}

/// Whether `text` contains `part`, in which `…` matches anything.
fn contains(text: &str, part: &str) -> bool {
    let after = |rest, piece| str::split_once(rest, piece).map(|(_, rest)| rest);
    part.split('…').try_fold(text, after).is_some()
}

/// Whether a text has words of its own: two or more besides its placeholders.
fn is_message(text: &str) -> bool {
    let words = text
        .split_whitespace()
        .filter(|word| !word.contains('{') && !word.contains('…'));
    words.filter(|word| word.chars().any(char::is_alphabetic)).count() >= 2
}

/// Whether a text is a file or a sample that code works with: it has several lines. A message has one.
fn is_document(text: &str) -> bool {
    text.trim_end().contains('\n')
}

/// Collects every text, also those in macros and attributes.
struct Literals<'a>(&'a mut BTreeSet<String>);

impl<'ast> Visit<'ast> for Literals<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.0.insert(readable(&text.value()));
    }

    fn visit_token_stream(&mut self, tokens: &'ast proc_macro2::TokenStream) {
        for token in tokens.clone() {
            match token {
                proc_macro2::TokenTree::Group(group) => self.visit_token_stream(&group.stream()),
                proc_macro2::TokenTree::Literal(literal) => {
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        self.visit_lit_str(&text);
                    }
                }
                _ => {}
            }
        }
    }
}

fn parse(folder: &Path, files: &mut Vec<syn::File>) -> Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .collect::<std::io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::path);
    for path in entries.into_iter().map(|entry| entry.path()) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name != "tests" {
                parse(&path, files)?;
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path)?;
            files.push(syn::parse_file(&text).with_context(|| path.display().to_string())?);
        }
    }
    Ok(())
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Path>()
                    .is_ok_and(|path| path.is_ident("test")))
    })
}

/// The last two segments of a path, `Enum::Variant`.
fn pair(path: &syn::Path) -> Option<(String, String)> {
    let mut segments = path.segments.iter().rev();
    let last = segments.next()?.ident.to_string();
    Some((segments.next()?.ident.to_string(), last))
}

fn reason_of(path: &syn::Path) -> Option<Reason> {
    let (type_, name) = pair(path)?;
    (type_ == "Reason")
        .then(|| Reason::all().find(|reason| reason.as_str() == name))
        .flatten()
}

/// `Enum::Variant` of errors: their texts and reasons.
#[derive(Default)]
struct Errors {
    texts: BTreeMap<(String, String), String>,
    reasons: BTreeMap<(String, String), BTreeSet<Reason>>,
}

impl Errors {
    fn add_to(&self, names: &Names<'_>, messages: &mut Messages) {
        for (variant, reasons) in &self.reasons {
            for reason in reasons {
                if let Some(text) = self.texts.get(variant) {
                    messages.add(*reason, Part::Whole, &names.resolve(text));
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Errors {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        for variant in &item.variants {
            let error = variant
                .attrs
                .iter()
                .find(|attribute| attribute.path().is_ident("error"));
            if let Some(text) = error.and_then(|attribute| attribute.parse_args_with(error_text).ok()) {
                self.texts.insert(
                    (item.ident.to_string(), variant.ident.to_string()),
                    readable(&text),
                );
            }
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let syn::Type::Path(type_) = &*item.self_ty else {
            return;
        };
        let Some(type_) = type_
            .path
            .segments
            .last()
            .map(|segment| segment.ident.to_string())
        else {
            return;
        };
        for function in &item.items {
            if let syn::ImplItem::Fn(function) = function
                && function.sig.ident == "reason"
            {
                ReasonMatch {
                    type_: &type_,
                    errors: self,
                }
                .visit_block(&function.block);
            }
        }
    }
}

/// The text of `#[error("…{annotation}…", annotation = names::PROFILE)]`, with `{PROFILE}` in it.
fn error_text(input: syn::parse::ParseStream) -> syn::Result<String> {
    let mut text = input.parse::<syn::LitStr>()?.value();
    let rest: proc_macro2::TokenStream = input.parse()?;
    let named = |input: syn::parse::ParseStream| {
        input.parse::<syn::Token![,]>()?;
        Punctuated::<Expr, syn::Token![,]>::parse_terminated(input)
    };
    for argument in syn::parse::Parser::parse2(named, rest).into_iter().flatten() {
        if let Expr::Assign(argument) = argument
            && let (Expr::Path(name), Expr::Path(value)) = (&*argument.left, &*argument.right)
            && let (Some(name), Some(value)) = (name.path.get_ident(), value.path.segments.last())
        {
            text = text.replace(&format!("{{{name}}}"), &format!("{{{}}}", value.ident));
            text = text.replace(&format!("{{{name}:?}}"), &format!("{{{}}}", value.ident));
        }
    }
    Ok(text)
}

/// The arms of a `fn reason`.
struct ReasonMatch<'a> {
    type_: &'a str,
    errors: &'a mut Errors,
}

impl<'ast> Visit<'ast> for ReasonMatch<'_> {
    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let mut reasons = ReasonPaths::default();
        reasons.visit_expr(&arm.body);
        let mut variants = Vec::new();
        patterns(&arm.pat, &mut variants);
        for (type_, variant) in variants {
            let type_ = if type_ == "Self" {
                self.type_.to_owned()
            } else {
                type_
            };
            self.errors
                .reasons
                .entry((type_, variant))
                .or_default()
                .extend(&reasons.0);
        }
    }
}

#[derive(Default)]
struct ReasonPaths(BTreeSet<Reason>);

impl<'ast> Visit<'ast> for ReasonPaths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.extend(reason_of(path));
    }
}

fn patterns(pattern: &Pat, variants: &mut Vec<(String, String)>) {
    match pattern {
        Pat::Or(or) => or.cases.iter().for_each(|case| patterns(case, variants)),
        Pat::Path(path) => variants.extend(pair(&path.path)),
        Pat::Struct(pattern) => variants.extend(pair(&pattern.path)),
        Pat::TupleStruct(pattern) => variants.extend(pair(&pattern.path)),
        _ => {}
    }
}

/// What a crate names: constants, and functions that return texts.
#[derive(Default)]
struct Names<'ast> {
    texts: BTreeMap<String, String>,
    reasons: BTreeMap<String, Reason>,
    functions: BTreeMap<String, &'ast Block>,
}

impl<'ast> Names<'ast> {
    /// A text with the values of constants in place of their names.
    fn resolve(&self, text: &str) -> String {
        let value =
            |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{name}}}"), value);
        self.texts.iter().fold(text.to_owned(), value)
    }

    fn add_function(&mut self, signature: &Signature, block: &'ast Block) {
        if let syn::ReturnType::Type(_, type_) = &signature.output
            && let syn::Type::Path(path) = &**type_
            && path
                .path
                .segments
                .last()
                .is_some_and(|last| last.ident == "String")
        {
            self.functions.insert(signature.ident.to_string(), block);
        }
    }
}

impl<'ast> Visit<'ast> for Names<'ast> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        match &*item.expr {
            Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) => {
                self.texts.insert(item.ident.to_string(), text.value());
            }
            Expr::Path(path) => {
                self.reasons
                    .extend(reason_of(&path.path).map(|reason| (item.ident.to_string(), reason)));
            }
            _ => {}
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add_function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add_function(&item.sig, &item.block);
    }
}

/// Functions whose arguments become part of a message, with its reasons.
type Sinks = BTreeMap<String, BTreeSet<(Reason, Part)>>;

/// Walks one function after another.
struct Walk<'a> {
    errors: &'a Errors,
    names: &'a Names<'a>,
    sinks: &'a mut Sinks,
    messages: &'a mut Messages,
    function: String,
    parameters: BTreeSet<String>,
    /// Texts of the variables of the function.
    variables: BTreeMap<String, BTreeSet<String>>,
    type_: String,
}

impl<'a> Walk<'a> {
    fn new(
        errors: &'a Errors,
        names: &'a Names<'a>,
        sinks: &'a mut Sinks,
        messages: &'a mut Messages,
    ) -> Self {
        Self {
            errors,
            names,
            sinks,
            messages,
            function: String::new(),
            parameters: BTreeSet::new(),
            variables: BTreeMap::new(),
            type_: String::new(),
        }
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        self.function = signature.ident.to_string();
        self.parameters.clear();
        for input in &signature.inputs {
            if let FnArg::Typed(input) = input
                && let Pat::Ident(name) = &*input.pat
            {
                self.parameters.insert(name.ident.to_string());
            }
        }
        self.variables.clear();
        // Twice, because a text may be appended to a variable in a later statement.
        self.visit_block(block);
        self.visit_block(block);
    }

    fn reason(&self, expression: &Expr) -> Option<Reason> {
        match expression {
            Expr::Path(path) => reason_of(&path.path).or_else(|| {
                let name = path.path.segments.last()?.ident.to_string();
                // `CLUSTER_CHANGED` and `REASON_UNDONE` are constants of other crates.
                self.names.reasons.get(&name).copied().or(match name.as_str() {
                    "CLUSTER_CHANGED" => Some(Reason::ClusterChanged),
                    "REASON_UNDONE" => Some(Reason::Undone),
                    _ => None,
                })
            }),
            _ => None,
        }
    }

    /// Expressions that stand together: texts among them belong to the reasons among them, or to those of `path`.
    fn together<'e>(
        &mut self,
        path: Option<&syn::Path>,
        expressions: impl Iterator<Item = &'e Expr> + Clone,
    ) {
        let named: BTreeSet<Reason> = expressions
            .clone()
            .filter_map(|expression| self.reason(expression))
            .collect();
        self.messages.used.extend(&named);
        let mut reasons: BTreeSet<(Reason, Part)> =
            named.into_iter().map(|reason| (reason, Part::Whole)).collect();
        if let Some(path) = path {
            if let Some((type_, variant)) = pair(path) {
                let type_ = if type_ == "Self" {
                    self.type_.clone()
                } else {
                    type_
                };
                if type_ == REQUEST_ERROR {
                    return;
                }
                let of_variant = self.errors.reasons.get(&(type_, variant)).into_iter().flatten();
                reasons.extend(of_variant.map(|reason| (*reason, Part::Detail)));
            }
            let name = path.segments.last().map(|segment| segment.ident.to_string());
            reasons.extend(name.and_then(|name| self.sinks.get(&name)).into_iter().flatten());
        }
        if reasons.is_empty() {
            return;
        }
        for expression in expressions {
            let mut texts = Texts::new(self.names, &self.variables);
            texts.visit_expr(expression);
            let is_parameter = texts.idents.iter().any(|name| self.parameters.contains(name));
            for (reason, part) in &reasons {
                texts
                    .found
                    .iter()
                    .for_each(|text| self.messages.add(*reason, *part, text));
                if is_parameter {
                    self.sinks
                        .entry(self.function.clone())
                        .or_default()
                        .insert((*reason, *part));
                }
            }
        }
    }

    fn append(&mut self, variable: &Expr, text: &Expr) {
        let Expr::Path(path) = variable else { return };
        let Some(name) = path.path.get_ident() else { return };
        let mut texts = Texts::new(self.names, &self.variables);
        texts.visit_expr(text);
        let found = texts.found;
        self.variables.entry(name.to_string()).or_default().extend(found);
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let syn::Type::Path(type_) = &*item.self_ty {
            self.type_ = type_
                .path
                .segments
                .last()
                .map(|last| last.ident.to_string())
                .unwrap_or_default();
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let Some(init) = &local.init {
            let mut texts = Texts::new(self.names, &self.variables);
            texts.visit_expr(&init.expr);
            let found = texts.found;
            let mut names = PatternNames::default();
            names.visit_pat(&local.pat);
            for name in names.0 {
                self.variables
                    .entry(name)
                    .or_default()
                    .extend(found.iter().cloned());
            }
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let path = match &*call.func {
            Expr::Path(path) => Some(&path.path),
            _ => None,
        };
        self.together(path, call.args.iter());
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "push_str"
            && let Some(text) = call.args.first()
        {
            self.append(&call.receiver, text);
        }
        if call.method == "check"
            && let [field, _, rule] = call.args.iter().collect::<Vec<_>>().as_slice()
        {
            let text = |expression: &Expr| {
                let mut texts = Texts::new(self.names, &self.variables);
                texts.visit_expr(expression);
                texts.found
            };
            for (field, rule) in text(field).into_iter().zip(text(rule)) {
                self.messages.settings.insert((field, rule));
            }
        }
        self.together(None, call.args.iter());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_struct(&mut self, item: &'ast syn::ExprStruct) {
        self.together(Some(&item.path), item.fields.iter().map(|field| &field.expr));
        visit::visit_expr_struct(self, item);
    }

    fn visit_expr_tuple(&mut self, tuple: &'ast syn::ExprTuple) {
        self.together(None, tuple.elems.iter());
        visit::visit_expr_tuple(self, tuple);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        if item.path.is_ident("write")
            && let Some((variable, text)) = arguments(item).and_then(|arguments| {
                let mut arguments = arguments.into_iter();
                arguments.next().zip(arguments.next())
            })
        {
            self.append(&variable, &text);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.messages.used.extend(reason_of(path));
        visit::visit_path(self, path);
    }
}

#[derive(Default)]
struct PatternNames(Vec<String>);

impl<'ast> Visit<'ast> for PatternNames {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.0.push(pattern.ident.to_string());
    }
}

fn arguments(item: &syn::Macro) -> Option<Punctuated<Expr, syn::Token![,]>> {
    item.parse_body_with(Punctuated::parse_terminated).ok()
}

/// The texts that an expression may become.
struct Texts<'a> {
    names: &'a Names<'a>,
    variables: &'a BTreeMap<String, BTreeSet<String>>,
    found: BTreeSet<String>,
    idents: BTreeSet<String>,
    depth: usize,
}

impl<'a> Texts<'a> {
    fn new(names: &'a Names<'a>, variables: &'a BTreeMap<String, BTreeSet<String>>) -> Self {
        Self {
            names,
            variables,
            found: BTreeSet::new(),
            idents: BTreeSet::new(),
            depth: 0,
        }
    }

    fn add(&mut self, text: &str) {
        let mut text = self.names.resolve(text);
        // `format!("{found}; …")`, where `found` is another text.
        if let Some((name, rest)) = text.strip_prefix('{').and_then(|rest| rest.split_once('}'))
            && let Some(value) = self.variables.get(name).filter(|values| values.len() == 1)
            && let Some(value) = value
                .first()
                .filter(|value| !value.contains(&format!("{{{name}}}")))
        {
            text = format!("{value}{rest}");
        }
        if !is_document(&text) {
            self.found.insert(readable(&text));
        }
    }

    fn call(&mut self, name: &str) {
        if self.depth < MAX_DEPTH
            && let Some(block) = self.names.functions.get(name)
        {
            self.depth += 1;
            self.visit_block(block);
            self.depth -= 1;
        }
    }
}

impl<'ast> Visit<'ast> for Texts<'_> {
    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) => self.add(&text.value()),
            Expr::Path(path) => {
                let Some(name) = path.path.segments.last().map(|last| last.ident.to_string()) else {
                    return;
                };
                if let Some(texts) = self.variables.get(&name) {
                    self.found.extend(texts.iter().cloned());
                }
                if let Some(text) = self.names.texts.get(&name) {
                    let text = text.clone();
                    self.add(&text);
                }
                self.idents.insert(name);
            }
            Expr::Call(call) => {
                if let Expr::Path(path) = &*call.func
                    && let Some(last) = path.path.segments.last()
                {
                    self.call(&last.ident.to_string());
                }
                // `Some("…")`, `Err("…")` and `String::from("…")` keep the text; other functions only read their arguments.
                let keeps =
                    |name: &syn::Ident| ["Some", "Ok", "Err", "from"].iter().any(|known| name == known);
                if let Expr::Path(path) = &*call.func
                    && path.path.segments.last().is_some_and(|last| keeps(&last.ident))
                {
                    call.args.iter().for_each(|argument| self.visit_expr(argument));
                }
            }
            Expr::MethodCall(call) => {
                self.call(&call.method.to_string());
                let keeps = [
                    "to_owned",
                    "to_string",
                    "into",
                    "clone",
                    "as_str",
                    "unwrap_or",
                    "then_some",
                    "ok_or",
                ];
                if keeps.iter().any(|name| call.method == name) {
                    self.visit_expr(&call.receiver);
                    call.args.iter().for_each(|argument| self.visit_expr(argument));
                }
            }
            Expr::Macro(item) if item.mac.path.is_ident("format") => {
                if let Some(arguments) = arguments(&item.mac)
                    && let Some(Expr::Lit(syn::ExprLit {
                        lit: syn::Lit::Str(text),
                        ..
                    })) = arguments.first()
                {
                    self.add(&text.value());
                    // `format!("{place}: {problem}")` passes its parameters on.
                    for name in placeholders(&text.value()) {
                        self.idents.insert(name);
                    }
                }
            }
            // The name of another reason or a nested struct is no text.
            Expr::Struct(_) | Expr::Closure(_) => {}
            _ => visit::visit_expr(self, expression),
        }
    }
}

/// Names in braces.
fn placeholders(text: &str) -> Vec<String> {
    let names = text
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split(['}', ':']).next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A format string as people read it: names in braces, and `…` for what has no name.
fn readable(text: &str) -> String {
    let (mut readable, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        readable.push_str(before);
        if after.starts_with("{{") || after.starts_with("}}") {
            readable.push_str(after.get(..1).unwrap_or_default());
            rest = after.get(2..).unwrap_or_default();
            continue;
        }
        let (inside, after) = after
            .get(1..)
            .and_then(|after| after.split_once('}'))
            .unwrap_or_default();
        let name = inside.split(':').next().unwrap_or_default();
        match name.starts_with(char::is_alphabetic) {
            true => readable.push_str(&format!("{{{name}}}")),
            false => readable.push('…'),
        }
        rest = after;
    }
    readable.push_str(rest);
    readable.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_strings_are_readable() {
        for (text, expected) in [
            ("{0:?} is bad", "… is bad"),
            ("{path}: {problem:?}", "{path}: {problem}"),
            ("'{{range}}' of {}", "'{range}' of …"),
            ("two\n  lines", "two lines"),
        ] {
            assert_eq!(readable(text), expected);
        }
    }

    #[test]
    fn messages_are_found_beside_reasons_in_variables_functions_and_errors() {
        let file: syn::File = syn::parse_str(
            r#"
            enum Bad { #[error("the {thing} is bad: {problem}")] Thing { thing: u8, problem: String } }
            impl Bad { fn reason(&self) -> Reason { match self { Self::Thing { .. } => Reason::ProfileInvalid } } }
            const HOW: &str = "mend it now";
            fn beside() { hold(false, Reason::EndpointUnknown, "no endpoint is known"); }
            fn variable() { let message = format!("it is gone; {HOW}"); let v = Verdict { reason: Reason::Retired, message }; }
            fn text(n: u8) -> String { format!("{n} of them are left") }
            fn function() { say(Reason::Undone, &text(1)); }
            fn helper(problem: &str) -> Bad { Bad::Thing { thing: 1, problem: problem.to_owned() } }
            fn caller() { helper("must be a round one"); }
            const SAMPLE: &str = "pause image: one\ninitial taints: two\n";
            fn sampled() { helper(SAMPLE); helper("ends with\n"); }
            #[cfg(test)]
            mod tests { fn a() { hold(false, Reason::NameTooLong, "only in a test"); } }
            "#,
        )
        .unwrap();
        let (mut errors, mut names, mut sinks): (Errors, Names, Sinks) = Default::default();
        let mut messages = Messages::default();
        Errors::visit_file(&mut errors, &file);
        Names::visit_file(&mut names, &file);
        errors.add_to(&names, &mut messages);
        for _ in 0..MAX_DEPTH {
            Walk::new(&errors, &names, &mut sinks, &mut messages).visit_file(&file);
        }
        assert_eq!(
            messages.of(Reason::EndpointUnknown, Part::Whole),
            ["no endpoint is known"]
        );
        assert_eq!(
            messages.of(Reason::Retired, Part::Whole),
            ["it is gone; mend it now"]
        );
        assert_eq!(messages.of(Reason::Undone, Part::Whole), ["{n} of them are left"]);
        let of_profile = |part| messages.of(Reason::ProfileInvalid, part);
        assert_eq!(of_profile(Part::Detail), ["ends with", "must be a round one"]);
        assert!(of_profile(Part::Whole).contains(&"the {thing} is bad: {problem}"));
        assert!(!messages.used.contains(&Reason::NameTooLong));
    }
}
