//! Every function charges what it does: it never works long between two charges, whatever it is given.
//!
//! `cargo test -p osm-gotemplate --test it work -- --nocapture` prints the functions that take the largest
//! part of what they may take.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use osm_gotemplate::budget::{Budget, Exhausted};
use osm_gotemplate::functions::{self, Function, Parameter};
use osm_gotemplate::{TemplateSet, Value};
use rustix::time::{ClockId, clock_gettime};

/// What one rendering may use, as in osm-render.
const MOST: [u64; 3] = [1_000_000, 64 << 20, 16 << 20];

/// The time of a processor that using up one of them may take, in an optimized build.
const TIME: Duration = Duration::from_secs(2);

/// How many times as long a call may take as its share of [`TIME`]. What grows with the square of its input
/// takes thousands of times as long, and a build that is not optimized some ten times.
const SLACK: f64 = if cfg!(debug_assertions) { 20.0 } else { 2.0 };

/// A call may take so long in any case.
const LEAST: Duration = Duration::from_millis(20);

/// A budget that remembers what was charged.
struct Charged {
    most: [u64; 3],
    used: [Cell<u64>; 3],
}

impl Charged {
    fn new(function: &Function) -> Self {
        let mut most = MOST;
        if function.name.to_lowercase().contains("regex") {
            most[1] /= 32; // Searching takes long in a build that is not optimized.
        }
        Self {
            most,
            used: Default::default(),
        }
    }

    fn charge(&self, index: usize, amount: u64) -> Result<(), Exhausted> {
        let used = self.used[index].get().saturating_add(amount);
        if used > self.most[index] {
            return Err(Exhausted("enough".to_owned()));
        }
        self.used[index].set(used);
        Ok(())
    }

    /// How long the work may have taken.
    fn time(&self) -> Duration {
        let shares = self.used.iter().zip(MOST);
        let share: f64 = shares.map(|(used, most)| used.get() as f64 / most as f64).sum();
        LEAST + TIME.mul_f64(share * SLACK)
    }
}

impl Budget for Charged {
    fn step(&self, steps: u64) -> Result<(), Exhausted> {
        self.charge(0, steps)
    }

    fn read(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(1, bytes as u64)
    }

    fn copy(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(2, bytes as u64)
    }

    fn write(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(2, bytes as u64)
    }
}

/// Time of a processor that this thread has taken: other programs don't count.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Input of some size, as a text and as a value.
struct Shape {
    name: &'static str,
    text: Rc<str>,
    value: Value,
}

fn repeated(piece: &str, bytes: usize) -> String {
    piece.repeat(bytes / piece.len())
}

fn shapes(bytes: usize) -> Vec<Shape> {
    let text = |name, piece: &str| {
        let text: Rc<str> = repeated(piece, bytes).into();
        let value = Value::String(text.clone());
        Shape { name, text, value }
    };
    let items = bytes / size_of::<Value>();
    let numbers = |count: usize| Value::list((0..count as i64).map(Value::int).collect());
    let entries = |count: usize| (0..count).map(|i| (format!("key{i}").into(), Value::int(i as i64)));
    let deep = (0..items).fold(Value::int(1), |inner, _| Value::list(vec![inner]));
    vec![
        text("a long text", "a"),
        text("many lines", "a: b\n"),
        text(
            "many characters",
            &('ä'..='\u{2FFFF}').step_by((1 << 20) / bytes).collect::<String>(),
        ),
        text("a pattern", "(a*|[b-c]{2,3})$1%s{{.}}"),
        text("a constraint", "1 - 2||"),
        Shape {
            name: "lists in a list",
            text: format!("[{}[0]]", repeated("[0],", bytes)).into(),
            value: Value::list((0..items / 8).map(|_| numbers(4)).collect()),
        },
        Shape {
            name: "numbers",
            text: format!("[{}0]", repeated("1234.5,", bytes)).into(),
            value: numbers(items),
        },
        Shape {
            name: "a map",
            text: format!(
                "{{{}\"\":0}}",
                (0..bytes / 16)
                    .map(|i| format!("\"key{i}\":1,"))
                    .collect::<String>()
            )
            .into(),
            value: Value::map(entries(items / 4).collect()),
        },
        Shape {
            name: "a deep value",
            text: repeated("[", bytes).into(),
            value: deep,
        },
    ]
}

/// The argument that a parameter gets: all of the shape, or little.
fn argument(parameter: Parameter, shape: Option<&Shape>) -> Option<Value> {
    Some(match (parameter, shape) {
        (Parameter::Int, _) => Value::int(3),
        (Parameter::Bool, _) => Value::Bool(true),
        (Parameter::String, Some(shape)) => Value::String(shape.text.clone()),
        (Parameter::Any | Parameter::Reflected, Some(shape)) => shape.value.clone(),
        (Parameter::Map, Some(shape)) => match &shape.value {
            map @ Value::Map(_) => map.clone(),
            value => Value::map([(shape.text.clone(), value.clone())].into()),
        },
        (Parameter::String | Parameter::Any | Parameter::Reflected, None) => Value::string("a"),
        (Parameter::Map, None) => Value::map(BTreeMap::from([("a".into(), Value::int(1))])),
        _ => return None,
    })
}

/// Calls the function, and returns how long it took and may have taken.
fn call(function: &Function, arguments: Vec<Value>) -> (Duration, Duration) {
    let names: String = (0..arguments.len()).map(|i| format!(" $.a{i}")).collect();
    let source = format!("{{{{ $x := {}{names} }}}}", function.name);
    let mut templates = TemplateSet::new("t");
    templates.parse("t", &source, &Charged::new(function)).unwrap();
    let data = Value::map((0..).map(|i| format!("a{i}").into()).zip(arguments).collect());
    let charged = Charged::new(function);
    let start = now();
    let _ = templates.execute("t", &data, &charged);
    (now() - start, charged.time())
}

#[test]
fn no_function_works_long_between_two_charges() {
    let mut too_long = Vec::new();
    let mut slowest = Vec::new();
    // Names of the same function share its summary.
    let mut known = BTreeSet::new();
    let functions: Vec<&Function> = functions::all()
        .filter(|function| known.insert(function.summary))
        .collect();
    for bytes in [1 << 14, 1 << 17, 1 << 20] {
        let shapes = shapes(bytes);
        for function in &functions {
            let fixed = function.parameters.iter().copied();
            let parameters: Vec<Parameter> = fixed
                .chain(function.variadic.into_iter().cycle().take(2))
                .collect();
            for shape in &shapes {
                // All arguments are large, or one of them.
                for large in 0..=parameters.len() {
                    let given = parameters.iter().enumerate().map(|(index, parameter)| {
                        argument(
                            *parameter,
                            Some(shape).filter(|_| large == index || large == parameters.len()),
                        )
                    });
                    let Some(given) = given.collect::<Option<Vec<Value>>>() else {
                        continue;
                    };
                    let (took, allowed) = call(function, given);
                    let part = took.as_secs_f64() / allowed.as_secs_f64();
                    let what = format!(
                        "{}, argument {large}: {} of {bytes} bytes",
                        function.name, shape.name
                    );
                    slowest.push((part, took, what.clone()));
                    if took > allowed {
                        too_long.push(format!("{what}: {took:?}, not {allowed:?}"));
                    }
                }
            }
        }
        // What takes too long for little takes for ever for much.
        assert!(too_long.is_empty(), "{too_long:#?}");
    }
    slowest.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    for (part, took, what) in slowest.iter().take(20) {
        println!("{:5.1} % {took:?} {what}", part * 100.0);
    }
}
