from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyDlioHpc(PythonPackage):
    """Measures how a storage system serves deep learning, as jobs of the batch system."""

    # The repository from which the site installs.
    homepage = "https://git.example.org/storage/dlio-hpc"
    git = "https://git.example.org/storage/dlio-hpc.git"

    license("MIT")

    version("main", branch="main")

    variant("report", default=True, description="HTML reports and figures")
    variant("pandas", default=False, description="format csv in framework mode")
    variant("parquet", default=False, description="format parquet in framework mode")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@64:", type="build")
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-google-crc32c@1.5:", type=("build", "run"))
    depends_on("py-h5py@3.8:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-mpi4py@4:", type=("build", "run"))
    depends_on("py-msgspec@0.18:", type=("build", "run"))
    depends_on("py-numpy@1.24:", type=("build", "run"))
    depends_on("py-pyyaml@6:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-zstandard@0.21:", type=("build", "run"))
    depends_on("py-matplotlib@3.7:", type=("build", "run"), when="+report")
    depends_on("py-pandas@2:", type=("build", "run"), when="+pandas")
    depends_on("py-pyarrow@14:", type=("build", "run"), when="+parquet")

    import_modules = ["dlio_hpc", "dlio_hpc.cli.command_line"]
