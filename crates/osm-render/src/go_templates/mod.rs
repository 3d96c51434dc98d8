//! The engine `GoTemplate`: profiles as the Go implementation takes them.
//!
//! Only files are templates. Each named template is executed by itself with all data, and a file that calls it gets the result. The Go
//! implementation takes that result for the source of a template once more, so that whoever writes a setting can write template code.
//! Here results are written as they are, and a profile that relies on the second time is refused.

mod containerd;
mod data;
pub(crate) mod passed_on;
mod spelling;

use std::cell::Cell;

use osm_api::profile::{File, MAX_CONTENT_BYTES};
use osm_api::settings::Settings;
use osm_gotemplate::{TemplateSet, Value, budget};

pub(crate) use self::passed_on::clean_path;
use self::spelling::Spelling;
use crate::Stage;
use crate::budget::Budget;
use crate::engine::{Compiled, Engine, Failure, Inputs, Located, Parts, Sources};
use crate::late_bound;
use crate::rendered_text::{NotCopied, RenderedText};
use osm_api::ClusterEndpoint;

/// What starts an action.
const ACTION: &str = "{{";

pub(crate) struct GoTemplateEngine;

impl Engine for GoTemplateEngine {
    fn library(&self) -> &'static Parts {
        const { &Parts::new() }
    }

    fn check<'s>(&self, _: &'s str) -> Result<Vec<&'s str>, Located> {
        Ok(Vec::new())
    }

    fn compile(&self, sources: &Sources<'_>, budget: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure> {
        let budget = &Charged::new(budget);
        let named = sources.partials.iter();
        let named = named.map(|(name, text)| Template::parse(name, text, budget));
        let texts = sources.texts.iter().map(|source| {
            Ok(Text {
                place: source.place.clone(),
                content: if source.in_file && source.text.contains(ACTION) {
                    Content::Template(Template::parse(&source.place, source.text, budget)?)
                } else {
                    Content::Verbatim(source.text.to_owned())
                },
            })
        });
        Ok(Box::new(Templates {
            named: named.collect::<Result<_, Failure>>()?,
            texts: texts.collect::<Result<_, Failure>>()?,
        }))
    }

    fn keeps_empty_files(&self) -> bool {
        true
    }

    fn kubelet_kubeconfig(&self, cluster: &ClusterEndpoint) -> Option<String> {
        Some(data::kubeconfig(cluster, Spelling::Marker))
    }

    fn files(&self, stage: Stage, settings: &Settings) -> Vec<File> {
        match stage {
            Stage::Bootstrap => Vec::new(),
            Stage::Provisioning => containerd::mirrors(settings),
        }
    }
}

/// A template with those that it defines itself.
struct Template {
    name: String,
    set: TemplateSet,
}

impl Template {
    fn parse(name: &str, source: &str, budget: &Charged<'_>) -> Result<Self, Failure> {
        let mut set = TemplateSet::new(name);
        set.parse(name, source, budget)
            .map_err(|error| failure(name, None, &error))?;
        Ok(Self {
            name: name.to_owned(),
            set,
        })
    }

    /// Renders it. `called` are the results of the named templates.
    fn render(
        &self,
        called: &TemplateSet,
        data: &Value,
        budget: &Charged<'_>,
    ) -> Result<String, osm_gotemplate::Error> {
        budget.written.set(0);
        self.set.execute_with(called, &self.name, data, budget)
    }
}

fn not_copied(refused: &NotCopied) -> String {
    match refused {
        NotCopied::Cut => {
            "a credential, or a name that is known only when user data is published, is cut: print it as a whole".to_owned()
        }
        NotCopied::OtherStage(id) => data::of_other_stage(id),
    }
}

/// The templates of one stage.
struct Templates {
    /// Those that files can call.
    named: Vec<Template>,
    texts: Vec<Text>,
}

/// Something that is rendered.
struct Text {
    place: String,
    content: Content,
}

enum Content {
    Verbatim(String),
    Template(Template),
}

impl Compiled for Templates {
    fn render(&self, inputs: &Inputs<'_>, budget: &Budget<'_>) -> Result<Vec<RenderedText>, Failure> {
        let budget = &Charged::new(budget);
        let with_markers = self.spelled(Spelling::Marker, inputs, budget)?;
        let with_others = self.spelled(Spelling::Other, inputs, budget)?;
        let rendered = self.texts.iter().zip(with_markers).zip(with_others);
        rendered
            .map(|((text, marked), other)| {
                let fail = |problem| Failure::of_text(&text.place, Located::nowhere(problem));
                if spelling::with_markers(&other) != marked {
                    return Err(fail(
                        "a function changes a credential, or a name that is known only when user data is published: print it as it is"
                            .to_owned(),
                    ));
                }
                let copied = inputs.late_bound.copied(marked);
                copied.map_err(|refused| fail(not_copied(&refused)))
            })
            .collect()
    }
}

impl Templates {
    /// Renders all texts, with one spelling of late-bound values.
    fn spelled(
        &self,
        spelling: Spelling,
        inputs: &Inputs<'_>,
        budget: &Charged<'_>,
    ) -> Result<Vec<String>, Failure> {
        let secrets = inputs.late_bound.secrets();
        let data = data::files_data(inputs.pool, inputs.settings, inputs.cluster, secrets, spelling);
        let (mut called, nothing) = (TemplateSet::new("named"), TemplateSet::new("nothing"));
        for named in &self.named {
            let result = named.render(&nothing, &data, budget);
            let result = result.map_err(|error| failure(&named.name, None, &error))?;
            refuse_second_evaluation(&named.name, &result, inputs)?;
            called.define_text(&named.name, &as_called(&result));
        }
        let text = |text: &Text| match &text.content {
            Content::Verbatim(content) => {
                budget.written.set(0);
                let charged = budget::Budget::write(budget, content.len());
                charged.map_err(|exhausted| Failure::of_text(&text.place, Located::nowhere(exhausted.0)))?;
                Ok(content.clone())
            }
            Content::Template(template) => template
                .render(&called, &data, budget)
                .map_err(|error| failure(&text.place, Some(&text.place), &error)),
        };
        self.texts.iter().map(text).collect()
    }
}

/// The result of a named template, as files get it: it starts with a line break, and ends without blanks.
fn as_called(result: &str) -> String {
    let trimmed = result.trim_end_matches([' ', '\t', '\r', '\n']);
    if trimmed.is_empty() {
        return String::new();
    }
    format!("\n{trimmed}")
}

/// Refuses a named template whose own text gives an action, which the Go implementation would evaluate.
fn refuse_second_evaluation(name: &str, result: &str, inputs: &Inputs<'_>) -> Result<(), Failure> {
    let is_action = |text: &str| text.contains(ACTION);
    if !is_action(result) || late_bound::find(inputs.data, &is_action).is_some() {
        return Ok(());
    }
    let problem = "its result contains {{, which is not evaluated a second time: move the action into the files that call this template";
    Err(Failure {
        template: name.to_owned(),
        text: None,
        at: Located::nowhere(problem),
    })
}

fn failure(template: &str, text: Option<&str>, error: &osm_gotemplate::Error) -> Failure {
    let mut problem = without_data(&error.problem).to_owned();
    if let Some(context) = error.context.as_deref().filter(|_| !error.exhausted) {
        problem = format!("at <{context}>: {problem}");
    }
    Failure {
        template: template.to_owned(),
        text: text.map(str::to_owned),
        at: Located {
            line: (error.line > 0).then_some(error.line),
            column: error.column.map(|before| before.saturating_add(1)),
            problem,
        },
    }
}

/// A problem without what a function says of its arguments, which may be secrets. What the template itself says is in the context.
fn without_data(problem: &str) -> &str {
    const CALL: &str = "error calling ";
    let Some((function, detail)) = problem.strip_prefix(CALL).and_then(|rest| rest.split_once(": ")) else {
        return problem;
    };
    if detail.starts_with("can't print the address of ") || detail == late_bound::SECRET_RULE {
        return problem; // It names a type, or is always the same.
    }
    problem
        .get(..CALL.len().saturating_add(function.len()))
        .unwrap_or(problem)
}

/// The budget of the rendering, as the interpreter charges it.
struct Charged<'b> {
    budget: &'b Budget<'b>,
    /// Bytes that the template has written that is rendered now.
    written: Cell<usize>,
}

impl<'b> Charged<'b> {
    fn new(budget: &'b Budget<'b>) -> Self {
        Self {
            budget,
            written: Cell::new(0),
        }
    }
}

fn exhausted(exhausted: crate::budget::Exhausted) -> budget::Exhausted {
    budget::Exhausted(exhausted.to_string())
}

impl budget::Budget for Charged<'_> {
    fn step(&self, steps: u64) -> Result<(), budget::Exhausted> {
        self.budget.step(steps).map_err(exhausted)
    }

    fn read(&self, bytes: usize) -> Result<(), budget::Exhausted> {
        self.budget.read(bytes).map_err(exhausted)
    }

    fn copy(&self, bytes: usize) -> Result<(), budget::Exhausted> {
        self.budget.copy(bytes).map_err(exhausted)
    }

    fn write(&self, bytes: usize) -> Result<(), budget::Exhausted> {
        self.written.set(self.written.get().saturating_add(bytes));
        if self.written.get() > MAX_CONTENT_BYTES {
            let problem = format!("the template writes more than {MAX_CONTENT_BYTES} bytes");
            return Err(budget::Exhausted(problem));
        }
        self.budget.write(bytes).map_err(exhausted)
    }
}
