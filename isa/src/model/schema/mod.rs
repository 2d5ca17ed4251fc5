//! What the tables are made of, for both sides of `build.rs`: the generator reads these words and writes these values,
//! the crate reads the values. An enum that only one side knew could drift from the other.

/// An enum whose variants tables name with words: `of` finds the variant, `word` gives the word back, `code` is the Rust
/// path that the generator writes.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$d:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[repr(u8)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$d])* $variant),* }

        #[allow(dead_code)]
        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// What a word of the tables stands for.
            pub fn of(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
            /// The word that stands for it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word),*
                }
            }
            /// Its path in Rust.
            pub fn code(self) -> &'static str {
                match self {
                    $($name::$variant => concat!(stringify!($name), "::", stringify!($variant))),*
                }
            }
        }
    };
}

mod meaning;
mod modifier;
mod operand;
mod target;

pub use meaning::*;
pub use modifier::*;
pub use operand::*;
pub use target::*;
