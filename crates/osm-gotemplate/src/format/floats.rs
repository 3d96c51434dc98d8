//! Floating-point numbers as Go's `%v` writes them.

/// The sign and the digits of a number, as few as identify it.
pub(super) fn shortest(value: f64, is_32: bool) -> (&'static str, String) {
    if value.is_nan() {
        return ("", "NaN".to_owned());
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return (if sign.is_empty() { "+" } else { sign }, "Inf".to_owned());
    }
    let scientific = scientific(value.abs(), is_32);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits = mantissa.replace('.', "");
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let text = match exponent {
        -4..0 => {
            let zeros = usize::try_from(exponent.unsigned_abs())
                .unwrap_or(1)
                .saturating_sub(1);
            format!("0.{}{digits}", "0".repeat(zeros))
        }
        0..6 => {
            let whole = usize::try_from(exponent).unwrap_or(0).saturating_add(1);
            match digits.split_at_checked(whole) {
                Some((whole, "")) => whole.to_owned(),
                Some((whole, fraction)) => format!("{whole}.{fraction}"),
                None => format!("{digits:0<whole$}"),
            }
        }
        _ => {
            let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
            let point = if rest.is_empty() { "" } else { "." };
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{first}{point}{rest}e{sign}{:02}", exponent.unsigned_abs())
        }
    };
    (sign, text)
}

/// As few digits as identify the number. Between two that are equally near, Go takes the even one, and the
/// standard library the larger.
fn scientific(absolute: f64, is_32: bool) -> String {
    #[allow(clippy::cast_possible_truncation)] // The value was an f32.
    let single = absolute as f32;
    let shortest = if is_32 {
        format!("{single:e}")
    } else {
        format!("{absolute:e}")
    };
    let fraction = shortest.find('e').unwrap_or(0).saturating_sub(2);
    let nearest = format!("{absolute:.fraction$e}");
    let is_exact = if is_32 {
        nearest.parse() == Ok(single)
    } else {
        nearest.parse() == Ok(absolute)
    };
    if is_exact { nearest } else { shortest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_go() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (100_000.0, "100000"),
            (1e6, "1e+06"),
            (1234.5, "1234.5"),
            (0.5, "0.5"),
            (0.000_1, "0.0001"),
            (0.000_01, "1e-05"),
            (1.5e300, "1.5e+300"),
            (2.0_f64.powi(-25), "2.9802322387695312e-08"),
        ] {
            assert_eq!(shortest(number, false), ("", text.to_owned()));
        }
        assert_eq!(shortest(49.101_562_5, true).1, "49.101562");
        assert_eq!(shortest(f64::from(-0.1_f32), true), ("-", "0.1".to_owned()));
    }
}
