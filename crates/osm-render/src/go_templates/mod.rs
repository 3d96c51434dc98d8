//! The engine `GoTemplate`: profiles as the upstream OSM takes them.
//!
//! Only files are templates. Each named template is executed by itself with all data, and a file that calls
//! it gets the result. The upstream OSM takes that result for the source of a template once more, so that
//! anyone who writes a setting can write template code. Here results are written as they are, and a profile
//! that relies on the second time is refused.

pub(crate) mod containerd;
mod data;
pub(crate) mod passed_on;
mod spelling;

use osm_api::profile::MAX_CONTENT_BYTES;
use osm_gotemplate::{TemplateSet, budget};
use osm_user_data::late_bound;

pub(crate) use self::passed_on::clean_path;
use self::spelling::Spelling;
use crate::budget::Budget;
use crate::engine::{Compiled, Engine, Failure, Inputs, Sources};
use crate::rendered_text::RenderedText;
use osm_api::ClusterEndpoint;

/// What starts an action.
const ACTION: &str = "{{";

/// Name of the template of a file.
const FILE: &str = "file";

pub(crate) struct GoTemplateEngine;

impl Engine for GoTemplateEngine {
    fn compile(&self, sources: &Sources<'_>, budget: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure> {
        let named = sources.partials.iter().map(|(name, text)| {
            let template = Template::parse(name, text, budget);
            template.map_err(|error| located(&error).in_template(name))
        });
        let texts = sources.texts.iter().enumerate().map(|(number, source)| {
            if !source.in_file || !source.text.contains(ACTION) {
                return Ok(Content::Verbatim(source.text.to_owned()));
            }
            let template = Template::parse(FILE, source.text, budget);
            let template = template.map_err(|error| located(&error).in_text(number));
            Ok(Content::Template(template?))
        });
        Ok(Box::new(Templates {
            named: named.collect::<Result<_, Failure>>()?,
            texts: texts.collect::<Result<_, Failure>>()?,
        }))
    }
}

/// The kubelet's bootstrap kubeconfig, with a marker for its token, for nodes that fetch it from a Secret of
/// its own.
pub(crate) fn kubelet_kubeconfig(cluster: &ClusterEndpoint) -> String {
    data::kubeconfig(cluster, Spelling::Marker)
}

/// A template with those that it defines itself.
struct Template {
    name: String,
    set: TemplateSet,
}

impl Template {
    fn parse(name: &str, source: &str, budget: &Budget<'_>) -> Result<Self, osm_gotemplate::Error> {
        let mut set = TemplateSet::new(name);
        set.parse(name, source, budget)?;
        Ok(Self {
            name: name.to_owned(),
            set,
        })
    }
}

/// The templates of one stage.
struct Templates {
    /// Those that files can call.
    named: Vec<Template>,
    texts: Vec<Content>,
}

enum Content {
    Verbatim(String),
    Template(Template),
}

impl Compiled for Templates {
    fn render(&self, inputs: &Inputs<'_>, budget: &Budget<'_>) -> Result<Vec<RenderedText>, Failure> {
        let with_markers = self.spelled(Spelling::Marker, inputs, budget)?;
        let with_others = self.spelled(Spelling::Other, inputs, budget)?;
        let rendered = with_markers.into_iter().zip(with_others).enumerate();
        rendered
            .map(|(number, (marked, other))| {
                let fail = |problem: String| Failure::from(problem).in_text(number);
                if spelling::with_markers(&other) != marked {
                    return Err(fail(
                        "a function changes a credential, or a name that is known only when user data is published: print it as it is"
                            .to_owned(),
                    ));
                }
                inputs.late_bound_values.text(marked).map_err(fail)
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
        budget: &Budget<'_>,
    ) -> Result<Vec<String>, Failure> {
        let data = data::files_data(inputs.pool, inputs.settings, inputs.cluster, spelling);
        let (mut called, nothing) = (TemplateSet::new("named"), TemplateSet::new("nothing"));
        for named in &self.named {
            let failed = |failure: Failure| failure.in_template(&named.name);
            let result = named.set.execute_with(&nothing, &named.name, &data, budget);
            let result = result.map_err(|error| failed(located(&error)))?;
            if gives_action(&result, inputs) {
                let problem = "its result contains {{, which is not evaluated a second time: move the action into the files that call \
                    this template";
                return Err(failed(problem.into()));
            }
            called.define_text(&named.name, &as_called(&result));
        }
        let text = |(number, text): (usize, &Content)| {
            let rendered = match text {
                Content::Verbatim(content) => match budget.write(content.len()) {
                    Ok(()) => Ok(content.clone()),
                    Err(exhausted) => Err(exhausted.into()),
                },
                Content::Template(Template { name, set }) => {
                    let rendered = set.execute_with(&called, name, &data, budget);
                    rendered.map_err(|error| located(&error))
                }
            };
            let rendered = match rendered {
                Ok(text) if text.len() > MAX_CONTENT_BYTES => Err(Failure::from(format!(
                    "the template writes more than {MAX_CONTENT_BYTES} bytes"
                ))),
                rendered => rendered,
            };
            rendered.map_err(|failure: Failure| failure.in_text(number))
        };
        self.texts.iter().enumerate().map(text).collect()
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

/// Whether the result of a named template has an action of its own, which the upstream OSM would evaluate.
fn gives_action(result: &str, inputs: &Inputs<'_>) -> bool {
    let is_action = |text: &str| text.contains(ACTION);
    is_action(result) && late_bound::find(inputs.data, &is_action).is_none()
}

fn located(error: &osm_gotemplate::Error) -> Failure {
    let mut problem = without_data(&error.problem).to_owned();
    if let Some(context) = error.context.as_deref().filter(|_| !error.exhausted) {
        problem = format!("at <{context}>: {problem}");
    }
    Failure {
        line: (error.line > 0).then_some(error.line),
        column: error.column.map(|before| before.saturating_add(1)),
        ..problem.into()
    }
}

/// A problem without what a function says of its arguments, which may be secrets. What the template itself
/// says is in the context.
fn without_data(problem: &str) -> &str {
    const CALL: &str = "error calling ";
    let Some((function, detail)) = problem.strip_prefix(CALL).and_then(|rest| rest.split_once(": ")) else {
        return problem;
    };
    if detail.starts_with("can't print the address of ") {
        return problem; // It names a type.
    }
    problem
        .get(..CALL.len().saturating_add(function.len()))
        .unwrap_or(problem)
}

fn exhausted(exhausted: crate::budget::Exhausted) -> budget::Exhausted {
    budget::Exhausted(exhausted.to_string())
}

impl budget::Budget for Budget<'_> {
    fn step(&self, steps: u64) -> Result<(), budget::Exhausted> {
        Budget::step(self, steps).map_err(exhausted)
    }

    fn read(&self, bytes: usize) -> Result<(), budget::Exhausted> {
        Budget::read(self, bytes).map_err(exhausted)
    }

    fn copy(&self, bytes: usize) -> Result<(), budget::Exhausted> {
        Budget::copy(self, bytes).map_err(exhausted)
    }

    fn write(&self, bytes: usize) -> Result<(), budget::Exhausted> {
        Budget::write(self, bytes).map_err(exhausted)
    }
}
