//! Floating-point numbers as Go's `strconv.FormatFloat` writes them.

/// A number as decimal digits: 0.d₁d₂d₃… × 10^point. There are no trailing zeros, and no digits for zero.
struct Decimal {
    digits: String,
    point: i32,
}

/// No float has more decimal digits than this, before or after the decimal point.
const MOST_DIGITS: usize = 1100;

/// Go's `strconv.FormatFloat`, with the verbs b, e, E, f, g, G, x and X. Without a precision, it writes as few digits as identify
/// the number. Positive infinity is `Inf` here, since the sign depends on flags.
pub(crate) fn format(value: f64, is_32: bool, verb: char, precision: Option<usize>) -> String {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return format!("{sign}Inf");
    }
    let absolute = value.abs();
    let number = match verb {
        'b' => binary(absolute, is_32),
        'x' | 'X' => hexadecimal(absolute, is_32, verb == 'X', precision),
        'e' | 'E' => {
            let decimal = Decimal::of(absolute, is_32, precision.map(|digits| digits.saturating_add(1)));
            let precision = precision.unwrap_or_else(|| decimal.digits.len().saturating_sub(1));
            decimal.with_exponent(precision, verb)
        }
        'g' | 'G' => general(absolute, is_32, verb, precision),
        _ => match precision {
            None => {
                let decimal = Decimal::of(absolute, is_32, None);
                let precision = decimal.fraction_digits();
                decimal.without_exponent(precision)
            }
            Some(precision) => {
                let exact = precision.min(MOST_DIGITS);
                let mut number = format!("{absolute:.exact$}");
                number.extend(std::iter::repeat_n('0', precision.saturating_sub(exact)));
                number
            }
        },
    };
    format!("{sign}{number}")
}

/// `%v` of a float.
pub(crate) fn shortest(value: f64, is_32: bool) -> String {
    let number = format(value, is_32, 'g', None);
    if number == "Inf" {
        "+Inf".to_owned()
    } else {
        number
    }
}

fn general(absolute: f64, is_32: bool, verb: char, precision: Option<usize>) -> String {
    let decimal = Decimal::of(absolute, is_32, precision.map(|digits| digits.max(1)));
    let count = decimal.digits.len();
    let point = i64::from(decimal.point);
    let (precision, threshold) = match precision {
        None => (count, 6),
        Some(precision) => {
            let precision = if absolute == 0.0 {
                precision
            } else {
                precision.max(1)
            };
            let fits = i64::try_from(count).unwrap_or(i64::MAX) >= point;
            (
                precision,
                if precision > count && fits {
                    count
                } else {
                    precision
                },
            )
        }
    };
    let exponent = point.saturating_sub(1);
    if exponent < -4 || exponent >= i64::try_from(threshold).unwrap_or(i64::MAX) {
        let verb = if verb == 'G' { 'E' } else { 'e' };
        return decimal.with_exponent(precision.min(count).saturating_sub(1), verb);
    }
    let precision = if i64::try_from(precision).unwrap_or(i64::MAX) > point {
        count
    } else {
        precision
    };
    let fraction = i64::try_from(precision).unwrap_or(i64::MAX).saturating_sub(point);
    decimal.without_exponent(usize::try_from(fraction).unwrap_or(0))
}

impl Decimal {
    /// Rounds to a number of digits, half to even. Without one, the digits are as few as identify the number.
    fn of(absolute: f64, is_32: bool, digits: Option<usize>) -> Self {
        if absolute == 0.0 {
            return Self {
                digits: String::new(),
                point: 0,
            };
        }
        let number = match digits {
            None => shortest_scientific(absolute, is_32),
            Some(digits) => format!("{absolute:.*e}", digits.clamp(1, MOST_DIGITS).saturating_sub(1)),
        };
        let (mantissa, exponent) = number.split_once('e').unwrap_or((&number, "0"));
        let digits = mantissa.replace('.', "");
        Self {
            digits: digits.trim_end_matches('0').to_owned(),
            point: exponent.parse::<i32>().unwrap_or(0).saturating_add(1),
        }
    }

    fn fraction_digits(&self) -> usize {
        let count = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        usize::try_from(count.saturating_sub(i64::from(self.point))).unwrap_or(0)
    }

    /// `d.ddde±dd`
    fn with_exponent(&self, precision: usize, verb: char) -> String {
        let (first, rest) = self.digits.split_at_checked(1).unwrap_or(("0", ""));
        let mut out = first.to_owned();
        if precision > 0 {
            let rest = rest.get(..precision).unwrap_or(rest);
            out.push('.');
            out.push_str(rest);
            out.extend(std::iter::repeat_n('0', precision.saturating_sub(rest.len())));
        }
        let exponent = if self.digits.is_empty() {
            0
        } else {
            self.point.saturating_sub(1)
        };
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{out}{verb}{sign}{:02}", exponent.unsigned_abs())
    }

    /// `ddd.ddd`
    fn without_exponent(&self, precision: usize) -> String {
        let before = usize::try_from(self.point).unwrap_or(0);
        let (whole, fraction) = self.digits.split_at_checked(before).unwrap_or((&self.digits, ""));
        let mut out = whole.to_owned();
        out.extend(std::iter::repeat_n('0', before.saturating_sub(whole.len())));
        if out.is_empty() {
            out.push('0');
        }
        if precision > 0 {
            let zeros = usize::try_from(self.point.saturating_neg())
                .unwrap_or(0)
                .min(precision);
            let rest = precision.saturating_sub(zeros);
            let fraction = fraction.get(..rest).unwrap_or(fraction);
            out.push('.');
            out.extend(std::iter::repeat_n('0', zeros));
            out.push_str(fraction);
            out.extend(std::iter::repeat_n('0', rest.saturating_sub(fraction.len())));
        }
        out
    }
}

/// As few digits as identify the number. Between two that are equally near, Go takes the even one, and the standard library the larger.
fn shortest_scientific(absolute: f64, is_32: bool) -> String {
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
    // Of the float32 2⁻¹², Go writes the odd one.
    let is_odd_one = is_32 && single == 2.0_f32.powi(-12);
    if is_exact && !is_odd_one {
        nearest
    } else {
        shortest
    }
}

/// The mantissa, the exponent, and how many bits the mantissa has: the value is mantissa × 2^exponent.
fn parts(absolute: f64, is_32: bool) -> (u64, i32, u32) {
    let (fraction, exponent, mantissa_bits, bias) = if is_32 {
        #[allow(clippy::cast_possible_truncation)] // The value was an f32.
        let bits = (absolute as f32).to_bits();
        (u64::from(bits & 0x7f_ffff), bits >> 23, 23, 127)
    } else {
        let bits = absolute.to_bits();
        (
            bits & 0xf_ffff_ffff_ffff,
            u32::try_from(bits >> 52).unwrap_or(0),
            52,
            1023,
        )
    };
    let exponent = i32::try_from(exponent).unwrap_or(0);
    // Numbers with the exponent 0 have no implicit leading 1.
    let (mantissa, exponent) = if exponent == 0 {
        (fraction, 1)
    } else {
        (fraction | 1 << mantissa_bits, exponent)
    };
    (mantissa, exponent.saturating_sub(bias), mantissa_bits)
}

/// `ddddp±ddd`
fn binary(absolute: f64, is_32: bool) -> String {
    let (mantissa, exponent, bits) = parts(absolute, is_32);
    let exponent = exponent.saturating_sub_unsigned(bits);
    format!("{mantissa}p{exponent:+}")
}

/// `0x1.yyyyp±dd`
fn hexadecimal(absolute: f64, is_32: bool, upper: bool, precision: Option<usize>) -> String {
    let (mantissa, mut exponent, bits) = parts(absolute, is_32);
    // The first digit is the bit 60.
    let mut mantissa = mantissa << 60_u32.saturating_sub(bits);
    if mantissa == 0 {
        exponent = 0;
    } else {
        let shift = mantissa.leading_zeros().saturating_sub(3);
        mantissa <<= shift;
        exponent = exponent.saturating_sub_unsigned(shift);
    }
    if let Some(precision) = precision
        .and_then(|digits| u32::try_from(digits).ok())
        .filter(|digits| *digits < 15)
    {
        let shift = precision.saturating_mul(4);
        let cut = 60_u32.saturating_sub(shift);
        let extra = (mantissa << shift) & ((1 << 60) - 1);
        mantissa >>= cut;
        if extra | (mantissa & 1) > 1 << 59 {
            mantissa = mantissa.saturating_add(1);
        }
        mantissa <<= cut;
        if mantissa & (1 << 61) != 0 {
            mantissa >>= 1;
            exponent = exponent.saturating_add(1);
        }
    }
    let first = (mantissa >> 60) & 1;
    let fraction = format!("{:015x}", mantissa & ((1 << 60) - 1));
    let mut out = format!("0x{first}");
    match precision {
        None => {
            let fraction = fraction.trim_end_matches('0');
            if !fraction.is_empty() {
                out.push('.');
                out.push_str(fraction);
            }
        }
        Some(0) => {}
        Some(precision) => {
            out.push('.');
            out.push_str(fraction.get(..precision).unwrap_or(&fraction));
            out.extend(std::iter::repeat_n('0', precision.saturating_sub(fraction.len())));
        }
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    out.push_str(&format!("p{sign}{:02}", exponent.unsigned_abs()));
    if upper { out.to_uppercase() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_that_are_equally_near_goes_the_even_one() {
        assert_eq!(shortest(2.0_f64.powi(-25), false), "2.9802322387695312e-08");
        assert_eq!(shortest(49.101_562_5, true), "49.101562");
        assert_eq!(shortest(2.0_f64.powi(-12), true), "0.00024414063");
    }
}
