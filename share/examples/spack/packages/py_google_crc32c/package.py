from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyGoogleCrc32c(PythonPackage):
    """CRC32C checksums, of TFRecord files. Newer than in Spack's own repository."""

    homepage = "https://github.com/googleapis/python-crc32c"
    pypi = "google-crc32c/google_crc32c-1.7.1.tar.gz"

    license("Apache-2.0")

    version("1.7.1", sha256="2bff2305f98846f3e825dbeec9ee406f89da7962accdb29356e4eadc251bd472")

    depends_on("c", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools", type="build")
    depends_on("google-crc32c", type=("build", "run"))

    def setup_build_environment(self, env):
        env.set("CRC32C_INSTALL_PREFIX", self.spec["google-crc32c"].prefix)
