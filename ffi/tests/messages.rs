//! Operators that must not compile, in `tests/ui`, each with the message that rustc prints.
//!
//! `TRYBUILD=overwrite cargo test -p tilewright-ffi --test messages` writes the messages anew.

#[test]
fn mistakes_are_reported_on_the_users_tokens() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
