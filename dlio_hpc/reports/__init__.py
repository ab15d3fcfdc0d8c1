"""Reports: results of jobs, studies and logs as documents, pages, pictures and exports."""
