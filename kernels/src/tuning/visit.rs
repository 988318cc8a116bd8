//! From the name of a kernel to the type of its configuration.

use super::Asked;
use crate::config::Config;
use crate::{attention, general, products, rows};
use tilewright::tune::Space;
use tilewright::{Error, Result};

/// A configuration with a space of others, as all have that the library asks for.
pub(crate) trait Tunable: Config {
    /// What may be tried in place of what was asked.
    fn space(asked: &Asked) -> Space<Self>;
}

/// What is done with a type of configurations.
pub(super) trait Visit {
    type Out;

    fn visit<C: Tunable>(self) -> Self::Out;
}

macro_rules! kernels {
    ($($config:ty),+ $(,)?) => {
        /// Visits the configuration of a kernel.
        ///
        /// # Errors
        /// [`Error::Tuning`] if the library has none of this name.
        pub(super) fn visit<V: Visit>(kernel: &str, visit: V) -> Result<V::Out> {
            $(if kernel == <$config>::KERNEL {
                return Ok(visit.visit::<$config>());
            })+
            Err(Error::Tuning {
                what: format!("there is no kernel `{kernel}`").into(),
                reason: format!("there are {}", [$(<$config>::KERNEL),+].join(", ")).into(),
            })
        }

        #[cfg(test)]
        pub(super) const KERNELS: &[&str] = &[$(<$config>::KERNEL),+];
    };
}

kernels! {
    products::MatmulConfig,
    products::GatedMatmulConfig,
    products::fp8::Fp8BlocksConfig,
    products::grouped::GroupedConfig,
    products::quantised::QuantisedConfig,
    general::ConvConfig,
    general::ConvWeightConfig,
    general::SortDigitsConfig,
    attention::ForwardConfig,
    attention::BackwardConfig,
    attention::DecodeConfig,
    attention::PrefillConfig,
    attention::MlaConfig,
    rows::SoftmaxConfig,
    rows::LogSoftmaxConfig,
    rows::CrossEntropyConfig,
    rows::DivergenceConfig,
    rows::NormConfig,
    rows::NormBackwardConfig,
    rows::GroupNormConfig,
    rows::GatedConfig,
    rows::RotaryConfig,
    rows::DropoutConfig,
    rows::EmbeddingConfig,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// How many configurations there are for sizes, and of them those that are there twice.
    struct Count(Asked);

    impl Visit for Count {
        type Out = Result<usize>;

        fn visit<C: Tunable>(self) -> Result<usize> {
            let space = C::space(&self.0);
            assert_eq!(space.axes()?.len(), C::NAMES.len() + 3, "{}", C::KERNEL);
            Ok(space.candidates()?.0.len())
        }
    }

    #[test]
    fn every_kernel_has_something_to_choose_from_whatever_the_sizes() {
        assert_eq!(KERNELS.iter().collect::<BTreeSet<_>>().len(), KERNELS.len(), "names are those of one kernel each");
        for &kernel in KERNELS {
            for sizes in [vec![], vec![1; 5], vec![4096; 5], vec![64, 8, 100, 3, usize::MAX >> 1]] {
                let asked = Asked { kernel, dtype: "f16".into(), sizes, config: Default::default() };
                let count = visit(kernel, Count(asked.clone())).unwrap();
                assert!(count.is_ok_and(|count| count > 0), "{asked:?}");
            }
        }
        let asked = Asked { kernel: "none", dtype: String::new(), sizes: Vec::new(), config: Default::default() };
        assert!(
            visit("none", Count(asked))
                .unwrap_err()
                .to_string()
                .contains("there is no kernel `none`; there are matmul,")
        );
    }
}
