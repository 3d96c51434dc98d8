//! The notation of the tables of functions.
//!
//! A row reads `"name" "alias": (Type, Type; Variadic) -> "result", "Summary.", arguments => output, run;`.
//! The example of each name is `{{ name arguments }}`; a whole template is given in parentheses.

/// Builds `FUNCTIONS` from rows.
macro_rules! table {
    ($($($name:literal)+: $parameters:tt -> $returns:literal, $summary:literal, $arguments:tt => $output:literal, $run:expr;)*) => {
        pub(crate) const FUNCTIONS: &[$crate::functions::Function] = &[$($(
            $crate::functions::Function {
                name: $name,
                parameters: $crate::functions::table::required!($parameters),
                variadic: $crate::functions::table::variadic!($parameters),
                returns: $returns,
                summary: $summary,
                example: ($crate::functions::table::example!($name, $arguments), $output),
                run: $run,
            },
        )+)*];
    };
}

/// The parameters that must be given: those before the semicolon.
macro_rules! required {
    (($($kind:ident),* $(; $variadic:ident)?)) => {
        &[$($crate::functions::Parameter::$kind),*]
    };
}

/// The parameter that can be given any number of times: the one after the semicolon.
macro_rules! variadic {
    (($($kind:ident),*)) => {
        None
    };
    (($($kind:ident),*; $variadic:ident)) => {
        Some($crate::functions::Parameter::$variadic)
    };
}

/// The template of the example.
macro_rules! example {
    ($name:literal, ($template:literal)) => {
        $template
    };
    ($name:literal, $arguments:literal) => {
        concat!("{{ ", $name, " ", $arguments, " }}")
    };
}

pub(crate) use {example, required, table, variadic};
