//! Compares: `v_cmp_<relation>_<type>` and `v_cmpx_...`, `v_cmp_class_...`.
//!
//! Source: VOPC section of the "Vega" and "RDNA3" manuals (table of the sixteen relations, mask of V_CMP_CLASS_F32).

// `lg` is "ordered and unequal", which `!=` is not for NaN.
#![allow(clippy::double_comparisons)]

use super::{Form, Sem, t};
use crate::lanes::{F16, Lane, Ty};
use crate::numeric::{class, f16_to_f32};

/// All relations of a numeric type; `$v` reads an operand.
macro_rules! relations {
    ($T:ty, $rel:expr, $form:expr, |$x:ident| $v:expr) => {{
        #[allow(clippy::redundant_closure_call)]
        let r = match $rel {
            "f" => t!($form, |a: $T, b: $T| {
                let _ = (a, b);
                false
            }),
            "lt" => t!($form, |a: $T, b: $T| (|$x: $T| $v)(a) < (|$x: $T| $v)(b)),
            "eq" => t!($form, |a: $T, b: $T| (|$x: $T| $v)(a) == (|$x: $T| $v)(b)),
            "le" => t!($form, |a: $T, b: $T| (|$x: $T| $v)(a) <= (|$x: $T| $v)(b)),
            "gt" => t!($form, |a: $T, b: $T| (|$x: $T| $v)(a) > (|$x: $T| $v)(b)),
            "ne" | "neq" => t!($form, |a: $T, b: $T| (|$x: $T| $v)(a) != (|$x: $T| $v)(b)),
            "lg" => t!($form, |a: $T, b: $T| {
                let (a, b) = ((|$x: $T| $v)(a), (|$x: $T| $v)(b));
                a < b || a > b
            }),
            "ge" => t!($form, |a: $T, b: $T| (|$x: $T| $v)(a) >= (|$x: $T| $v)(b)),
            "o" => t!($form, |a: $T, b: $T| {
                let (a, b) = ((|$x: $T| $v)(a), (|$x: $T| $v)(b));
                a == a && b == b
            }),
            "u" => t!($form, |a: $T, b: $T| {
                let (a, b) = ((|$x: $T| $v)(a), (|$x: $T| $v)(b));
                a != a || b != b
            }),
            "nge" => t!($form, |a: $T, b: $T| !((|$x: $T| $v)(a) >= (|$x: $T| $v)(b))),
            "nlg" => t!($form, |a: $T, b: $T| {
                let (a, b) = ((|$x: $T| $v)(a), (|$x: $T| $v)(b));
                !(a < b || a > b)
            }),
            "ngt" => t!($form, |a: $T, b: $T| !((|$x: $T| $v)(a) > (|$x: $T| $v)(b))),
            "nle" => t!($form, |a: $T, b: $T| !((|$x: $T| $v)(a) <= (|$x: $T| $v)(b))),
            "nlt" => t!($form, |a: $T, b: $T| !((|$x: $T| $v)(a) < (|$x: $T| $v)(b))),
            "t" | "tru" => t!($form, |a: $T, b: $T| {
                let _ = (a, b);
                true
            }),
            _ => return None,
        };
        r
    }};
}

/// Semantics by name.
#[allow(clippy::eq_op, clippy::neg_cmp_op_on_partial_ord)]
pub fn find(name: &str) -> Option<Sem> {
    let (form, rest) = match name.strip_prefix("v_cmpx_") {
        Some(r) => (Form::CompareExec, r),
        None => (Form::Compare, name.strip_prefix("v_cmp_")?),
    };
    let (relation, ty) = rest.rsplit_once('_')?;
    if relation == "class" {
        return Some(match ty {
            "f32" => t!(form, |a: f32, b: u32| class(a.to_bits() as u64, b, 32, 23)).raw(),
            "f64" => t!(form, |a: f64, b: u32| class(a.to_bits(), b, 64, 52)).raw(),
            "f16" => t!(form, |a: F16, b: u32| class(a.0 as u64, b, 16, 10)).raw(),
            _ => return None,
        });
    }
    Some(match ty {
        "f32" => relations!(f32, relation, form, |x| x),
        "f64" => relations!(f64, relation, form, |x| x),
        "f16" => relations!(F16, relation, form, |x| f16_to_f32(x)),
        "i32" => relations!(i32, relation, form, |x| x),
        "u32" => relations!(u32, relation, form, |x| x),
        "i64" => relations!(i64, relation, form, |x| x),
        "u64" => relations!(u64, relation, form, |x| x),
        "i16" => relations!(i16, relation, form, |x| x),
        "u16" => relations!(u16, relation, form, |x| x),
        _ => return None,
    })
}
