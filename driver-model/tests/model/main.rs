//! The model of the driver, as the driver: through its own functions, and through the runtime.

mod captures;
mod launches;
mod order;
mod raw;
mod violations;

/// Tests that run in a process which has the model.
macro_rules! in_the_model {
    ($($(#[doc = $doc:expr])* fn $name:ident($settings:expr) $body:block)*) => { $(
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            let (_, test) = path.split_once("::").expect("the crate's name comes first");
            if tilewright_driver_model::in_model(test, &$settings) $body
        }
    )* };
}
use in_the_model;
