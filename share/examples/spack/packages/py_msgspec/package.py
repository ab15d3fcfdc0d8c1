from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyMsgspec(PythonPackage):
    """Serialization and validation of JSON and YAML. For Spack repositories that do not have it."""

    homepage = "https://jcristharif.com/msgspec/"
    pypi = "msgspec/msgspec-0.19.0.tar.gz"

    license("BSD-3-Clause")

    version("0.19.0", sha256="604037e7cd475345848116e89c553aa9a233259733ab51986ac924ab1b976f8e")

    depends_on("c", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools", type="build")
