//! Compares: `v_cmp_<relation>_<type>` and `v_cmpx_...`, `v_cmp_class_...`.
//!
//! Source: VOPC section of the "Vega" and "RDNA3" manuals (table of the sixteen relations, mask of V_CMP_CLASS_F32).

// `lg` is "ordered and unequal", which `!=` is not for NaN.
#![allow(clippy::double_comparisons)]

use super::{Form, Sem, t};
use crate::lanes::{F16, Lane, Ty};
use crate::numeric::{class, f16_to_f32};
use barewave_isa::action::{Comparison, Number};

fn form(exec: bool) -> Form {
    if exec { Form::CompareExec } else { Form::Compare }
}

/// A compare whose result does not depend on the numbers.
fn always(result: bool, ty: Ty, form: Form) -> Sem {
    let sem = match result {
        true => t!(form, |_a: u32, _b: u32| true),
        false => t!(form, |_a: u32, _b: u32| false),
    };
    Sem { src: [ty, ty, Ty::None], float: ty.is_float(), ..sem }
}

/// The relations of an integer type that tell signed from unsigned.
macro_rules! order {
    ($T:ty, $relation:expr, $form:expr, $equal:expr) => {
        match $relation {
            Comparison::Lt | Comparison::Nge => t!($form, |a: $T, b: $T| a < b),
            Comparison::Le | Comparison::Ngt => t!($form, |a: $T, b: $T| a <= b),
            Comparison::Gt | Comparison::Nle => t!($form, |a: $T, b: $T| a > b),
            Comparison::Ge | Comparison::Nlt => t!($form, |a: $T, b: $T| a >= b),
            Comparison::Eq | Comparison::Nlg => $equal(true),
            Comparison::Ne | Comparison::Neq | Comparison::Lg => $equal(false),
            Comparison::False | Comparison::Unordered => always(false, <$T as Lane>::TY, $form),
            Comparison::True | Comparison::Tru | Comparison::Ordered => always(true, <$T as Lane>::TY, $form),
        }
    };
}

/// All relations of a float type; `$v` reads an operand.
macro_rules! float {
    ($T:ty, $relation:expr, $form:expr, |$x:ident| $v:expr) => {{
        let number = |$x: $T| $v;
        let _ = number;
        macro_rules! f {
            ($a:ident, $b:ident, $e:expr) => {
                t!($form, |a: $T, b: $T| {
                    let number = |$x: $T| $v;
                    let ($a, $b) = (number(a), number(b));
                    $e
                })
            };
        }
        match $relation {
            Comparison::Lt => f!(a, b, a < b),
            Comparison::Eq => f!(a, b, a == b),
            Comparison::Le => f!(a, b, a <= b),
            Comparison::Gt => f!(a, b, a > b),
            Comparison::Lg => f!(a, b, a < b || a > b),
            Comparison::Ge => f!(a, b, a >= b),
            Comparison::Ordered => f!(a, b, a == a && b == b),
            Comparison::Unordered => f!(a, b, a != a || b != b),
            Comparison::Nge => f!(a, b, !(a >= b)),
            Comparison::Nlg => f!(a, b, !(a < b || a > b)),
            Comparison::Ngt => f!(a, b, !(a > b)),
            Comparison::Nle => f!(a, b, !(a <= b)),
            Comparison::Ne | Comparison::Neq => f!(a, b, a != b),
            Comparison::Nlt => f!(a, b, !(a < b)),
            Comparison::False => always(false, <$T as Lane>::TY, $form),
            Comparison::True | Comparison::Tru => always(true, <$T as Lane>::TY, $form),
        }
    }};
}

/// Semantics of a compare. Equality is the same for signed and unsigned numbers.
#[allow(clippy::eq_op, clippy::neg_cmp_op_on_partial_ord)]
pub fn of(relation: Comparison, number: Number, exec: bool) -> Sem {
    let form = form(exec);
    let equal16 = |yes| if yes { t!(form, |a: u16, b: u16| a == b) } else { t!(form, |a: u16, b: u16| a != b) };
    let equal32 = |yes| if yes { t!(form, |a: u32, b: u32| a == b) } else { t!(form, |a: u32, b: u32| a != b) };
    let equal64 = |yes| if yes { t!(form, |a: u64, b: u64| a == b) } else { t!(form, |a: u64, b: u64| a != b) };
    match number {
        Number::I16 => order!(i16, relation, form, equal16),
        Number::U16 => order!(u16, relation, form, equal16),
        Number::I32 => order!(i32, relation, form, equal32),
        Number::U32 => order!(u32, relation, form, equal32),
        Number::I64 => order!(i64, relation, form, equal64),
        Number::U64 => order!(u64, relation, form, equal64),
        Number::F16 => float!(F16, relation, form, |x| f16_to_f32(x)),
        Number::F32 => float!(f32, relation, form, |x| x),
        Number::F64 => float!(f64, relation, form, |x| x),
    }
}

/// Semantics of a test for classes of floats; of other types there is none.
pub fn class_of(number: Number, exec: bool) -> Option<Sem> {
    let form = form(exec);
    Some(match number {
        Number::F32 => t!(form, |a: f32, b: u32| class(a.to_bits() as u64, b, 32, 23)).raw(),
        Number::F64 => t!(form, |a: f64, b: u32| class(a.to_bits(), b, 64, 52)).raw(),
        Number::F16 => t!(form, |a: F16, b: u32| class(a.0 as u64, b, 16, 10)).raw(),
        _ => return None,
    })
}
