//! Decimal numbers with the results of `github.com/shopspring/decimal`, which sprig calculates `addf`, `subf`, `mulf` and `divf` with.

use num_bigint::{BigInt, Sign};

use super::Problem;
use crate::budget::Budget;

/// Decimal places of a quotient.
const PRECISION: i64 = 16;

/// `value` × 10^`exponent`.
#[derive(Clone, Debug)]
pub(crate) struct Decimal {
    value: BigInt,
    exponent: i64,
}

pub(crate) type Operation = fn(&Decimal, &Decimal, &dyn Budget) -> Result<Decimal, Problem>;

impl Decimal {
    /// The number with the fewest digits that is `number` as `f64`.
    pub(crate) fn from_float(number: f64) -> Result<Self, Problem> {
        if !number.is_finite() {
            let name = match number {
                f64::INFINITY => "+Inf",
                f64::NEG_INFINITY => "-Inf",
                _ => "NaN",
            };
            return Err(Problem::new(format!("Cannot create a Decimal from {name}")));
        }
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let places = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let value: i64 = digits.replace('.', "").parse().unwrap_or(0);
        let exponent: i64 = exponent.parse().unwrap_or(0);
        Ok(Self {
            value: value.into(),
            exponent: if value == 0 {
                0
            } else {
                exponent - i64::try_from(places).unwrap_or(0)
            },
        })
    }

    pub(crate) fn to_float(&self, budget: &dyn Budget) -> Result<f64, Problem> {
        let words = self.value.bits() / 64 + 1;
        budget.step(words.saturating_mul(words / 16 + 1))?;
        Ok(format!("{}e{}", self.value, self.exponent)
            .parse()
            .unwrap_or(f64::NAN))
    }

    pub(crate) fn add(&self, other: &Self, budget: &dyn Budget) -> Result<Self, Problem> {
        let exponent = self.exponent.min(other.exponent);
        let value = self.rescaled(exponent, budget)? + other.rescaled(exponent, budget)?;
        Ok(Self { value, exponent })
    }

    pub(crate) fn sub(&self, other: &Self, budget: &dyn Budget) -> Result<Self, Problem> {
        let exponent = self.exponent.min(other.exponent);
        let value = self.rescaled(exponent, budget)? - other.rescaled(exponent, budget)?;
        Ok(Self { value, exponent })
    }

    pub(crate) fn mul(&self, other: &Self, budget: &dyn Budget) -> Result<Self, Problem> {
        charge(self.value.bits() + other.value.bits(), budget)?;
        Ok(Self {
            value: &self.value * &other.value,
            exponent: self.exponent + other.exponent,
        })
    }

    /// The quotient with 16 decimal places, rounded half away from zero.
    pub(crate) fn div(&self, other: &Self, budget: &dyn Budget) -> Result<Self, Problem> {
        if other.value.sign() == Sign::NoSign {
            return Err(Problem::new("decimal division by 0"));
        }
        let shift = self.exponent - other.exponent + PRECISION;
        let dividend = scaled(&self.value, shift.max(0), budget)?;
        let divisor = scaled(&other.value, (-shift).max(0), budget)?;
        charge(dividend.bits() + divisor.bits(), budget)?;
        let quotient = &dividend / &divisor;
        let twice_the_rest: BigInt = (&dividend - &quotient * &divisor) * 2;
        let is_negative = (self.value.sign() == Sign::Minus) != (other.value.sign() == Sign::Minus);
        let value = if twice_the_rest.magnitude() < divisor.magnitude() || self.value.sign() == Sign::NoSign {
            quotient
        } else if is_negative {
            quotient - 1
        } else {
            quotient + 1
        };
        Ok(Self {
            value,
            exponent: -PRECISION,
        })
    }

    /// The value for a smaller exponent.
    fn rescaled(&self, exponent: i64, budget: &dyn Budget) -> Result<BigInt, Problem> {
        scaled(&self.value, self.exponent - exponent, budget)
    }
}

/// `value` × 10^`exponent`, for an exponent that is not negative.
fn scaled(value: &BigInt, exponent: i64, budget: &dyn Budget) -> Result<BigInt, Problem> {
    let exponent = u32::try_from(exponent).map_err(|_| Problem::new("overflow in decimal QuoRem"))?;
    charge(
        value.bits().saturating_add(u64::from(exponent).saturating_mul(4)),
        budget,
    )?;
    Ok(value * BigInt::from(10).pow(exponent))
}

/// Charges an operation on numbers of so many bits together.
fn charge(bits: u64, budget: &dyn Budget) -> Result<(), Problem> {
    let words = bits / 64 + 1;
    budget.step(words.saturating_mul(words / 16 + 1))?;
    budget.copy(usize::try_from(words.saturating_mul(8)).unwrap_or(usize::MAX))?;
    Ok(())
}
